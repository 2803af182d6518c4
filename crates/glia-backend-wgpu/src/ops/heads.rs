//! The heads of an attention prepared in one dispatch: queries, keys and values normed and rotated, keys and values
//! written to the cache.

use glia_core::{BackendError, DType, Instr, Op, Rope, RopePairing, Segment, StateId, StateKind, ValueId, ValueKind};

use super::{GROUP, cache, rope};
use crate::program::{Chain, HeadsItem, Lower};
use crate::shader::{Call, KernelKey, Source};

/// RMSNorm over each head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeadNorm {
    /// A weight of the head's size.
    pub gain: Option<ValueId>,
    pub eps: f32,
    pub plus_one: bool,
}

/// What becomes of one of q, k and v.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head<'a> {
    /// `[T, heads, size]`, or a value whose bytes are that.
    pub x: ValueId,
    pub n_heads: usize,
    pub size: usize,
    pub norm: Option<HeadNorm>,
    /// After the norm; the instruction names positions and frequencies.
    pub rope: Option<(&'a Rope, &'a Instr)>,
}

/// The heads of one attention.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Heads<'a> {
    /// Changed where it lies.
    pub q: Head<'a>,
    /// The prepared queries: they take the memory of `q.x`, which nothing else reads.
    pub q_out: ValueId,
    pub k: Head<'a>,
    pub v: Head<'a>,
    /// The cache that takes keys and values.
    pub state: StateId,
}

impl<'a> Heads<'a> {
    /// The heads of a group of instructions; `None` when their types are not what this kernel is for.
    pub fn of(segment: &'a Segment, item: &HeadsItem) -> Option<Heads<'a>> {
        let cache = &segment.instrs[item.cache];
        let no_chain = |x: ValueId| Chain {
            x,
            norm: None,
            rope: None,
            out: x,
        };
        Some(Heads {
            q: Head::of(segment, &item.q)?,
            q_out: item.q.out,
            k: Head::of(segment, &item.k)?,
            v: Head::of(segment, &no_chain(cache.inputs[1]))?,
            state: cache.state?,
        })
    }

    fn all(&self) -> [&Head<'a>; 3] {
        [&self.q, &self.k, &self.v]
    }

    /// The rotation that q and k share, if any is rotated.
    fn rope(&self) -> Option<(&'a Rope, &'a Instr)> {
        self.q.rope.or(self.k.rope)
    }
}

impl<'a> Head<'a> {
    fn of(segment: &'a Segment, chain: &Chain) -> Option<Head<'a>> {
        let [_, n_heads, size] = segment.value(chain.x).ty.dims[..] else {
            return None;
        };
        let norm = match chain.norm.map(|i| &segment.instrs[i]) {
            None => None,
            Some(instr) => match instr.op {
                Op::RmsNorm { eps, plus_one } => Some(HeadNorm {
                    gain: instr.inputs.get(1).copied(),
                    eps,
                    plus_one,
                }),
                _ => return None,
            },
        };
        let rope = match chain.rope.map(|i| &segment.instrs[i]) {
            None => None,
            Some(instr) => match &instr.op {
                Op::Rope(rope) => Some((rope, instr)),
                _ => return None,
            },
        };
        Some(Head {
            x: chain.x,
            n_heads: n_heads.as_fixed()?,
            size: size.as_fixed()?,
            norm,
            rope,
        })
    }
}

/// Whether [`lower`] takes these: one table of rotations for all, heads of whole units of the cache.
pub(crate) fn fits(segment: &Segment, kv_dtypes: [DType; 2], heads: &Heads<'_>) -> bool {
    let kind = |id: ValueId| &segment.value(segment.resolve(id)).kind;
    let spec = &segment.states[heads.state.index()].spec;
    let kept = spec.kind == StateKind::Rows && spec.parts.len() == 2 && kv_dtypes[0] == kv_dtypes[1];
    let unit = cache::unit(kv_dtypes[0]);
    let [q, k, v] = heads.all();
    let sizes = q.size == k.size && k.n_heads == v.n_heads && [k, v].iter().all(|h| h.size.is_multiple_of(unit));
    let gain = |head: &Head<'_>| head.norm.and_then(|norm| norm.gain);
    let weights = heads
        .all()
        .into_iter()
        .filter_map(gain)
        .all(|id| matches!(kind(id), ValueKind::Const(_)));
    let inputs = |instr: &Instr| -> Vec<ValueId> { instr.inputs[1..].iter().map(|&id| segment.resolve(id)).collect() };
    let alike = match (q.rope, k.rope) {
        (Some((a, of_a)), Some((b, of_b))) => a == b && inputs(of_a) == inputs(of_b),
        _ => true,
    };
    let roots = heads.all().map(|head| segment.resolve(head.x));
    // Q is written: it must be nobody else's, and no input.
    let own =
        roots[0] != roots[1] && roots[0] != roots[2] && matches!(kind(q.x), ValueKind::Temp(_) | ValueKind::Dynamic);
    kept && sizes && weights && alike && own && v.rope.is_none()
}

/// Adds the dispatch.
///
/// # Errors
/// When a weight cannot be read, or the kernel does not compile.
pub(crate) fn lower(cx: &mut Lower<'_>, heads: &Heads<'_>) -> Result<(), BackendError> {
    let [q, k, v] = heads.all();
    let dtype = cx.kv_dtype(0);
    for part in 0..2 {
        cache::row_elems(cx, heads.state, part)?;
    }
    let [xq, xk, xv] = [cx.value(q.x)?, cx.value(k.x)?, cx.value(v.x)?];
    let (trig, half) = match heads.rope() {
        Some((rope, instr)) => rope::table(cx, instr, rope)?,
        None => (xk, 0),
    };
    // All gains behind each other: there is room for one more buffer only.
    let mut gains: Vec<u32> = Vec::new();
    let (mut normed, mut rotated) = (0, 0);
    let (mut eps, mut add, mut gain_at) = ([0.0; 3], [0.0; 3], [u32::MAX; 3]);
    for (i, head) in heads.all().into_iter().enumerate() {
        rotated |= u32::from(head.rope.is_some()) << i;
        let Some(norm) = head.norm else { continue };
        normed |= 1 << i;
        eps[i] = norm.eps;
        let Some(id) = norm.gain.and_then(|id| cx.const_of(id)) else {
            continue;
        };
        add[i] = if norm.plus_one { 1.0 } else { 0.0 };
        // Elements of a few heads.
        gain_at[i] = gains.len() as u32;
        gains.extend(crate::weights::plain_words(&cx.weight(id)?)?);
    }
    let gains = if gains.is_empty() {
        xk
    } else {
        cx.upload_words("gains of heads", &gains)?
    };
    let caches = [cx.kv(heads.state, 0), cx.kv(heads.state, 1)];
    let table = cx.table();
    cx.place(heads.q_out, xq);
    let interleaved = heads
        .rope()
        .is_some_and(|(rope, _)| rope.pairing == RopePairing::Interleaved);
    let alone = cx.caps().alone(6 * q.size.max(v.size));
    let key = |access: &[_]| {
        let key = KernelKey::new(Source::Heads, access)
            .flag("ALONE", alone)
            .flag("NORM", normed != 0)
            .flag("ROPE", rotated != 0)
            .flag("INTERLEAVED", interleaved);
        cache::define(key, dtype)
    };
    let (n_q, n_kv, d, dv) = (q.n_heads, k.n_heads, k.size, v.size);
    cx.kernel(
        key,
        &[xk, xv, gains, trig, table],
        &[xq, caches[0], caches[1]],
        move |info| {
            let n_rows = info.sizes.t;
            let n = n_rows * (n_q + 2 * n_kv);
            let groups = if alone { n.div_ceil(GROUP) } else { n };
            let mut call = Call::new(groups, &[n, n_q, n_kv, d, dv, half, n_rows])
                .word(7, normed)
                .word(8, rotated);
            for i in 0..3 {
                call = call.float(9 + i, eps[i]).float(12 + i, add[i]).word(15 + i, gain_at[i]);
            }
            call
        },
    )
}
