//! Scaled dot-product attention, over the cache or over dense keys and values: tiles of queries over splits of keys,
//! then one kernel that adds up the splits where there are several.

mod plan;

use glia_core::{BackendError, DType, Instr, Sdpa, StateId, Symbol, ValueId, ValueKind, ValueType};

use super::{GROUP, cache};
use crate::program::{BLOCK_TOKENS, Bind, BufId, Lower, StepInfo};
use crate::shader::{Access, Call, KernelKey, Source};
use plan::{Form, Rows};

/// Keys and values where they lie in a cache: both parts of one state, in one dtype.
fn cached(cx: &Lower<'_>, k: ValueId, v: ValueId) -> Option<StateId> {
    match (cx.kind(k), cx.kind(v)) {
        (ValueKind::State(a, 0), ValueKind::State(b, 1)) if a == b && cx.kv_dtype(0) == cx.kv_dtype(1) => Some(*a),
        _ => None,
    }
}

/// Adds the dispatches of an attention.
///
/// # Errors
/// When a cache cannot hold its rows, or a kernel does not compile.
pub(super) fn lower(cx: &mut Lower<'_>, instr: &Instr, sdpa: &Sdpa) -> Result<(), BackendError> {
    let [q_id, k_id, v_id] = [instr.inputs[0], instr.inputs[1], instr.inputs[2]];
    let size = |id: ValueId, axis: usize| cx.ty(id).dims[axis].as_fixed().unwrap_or(0);
    let form = Form {
        heads: size(q_id, 1),
        groups: size(k_id, 1).max(1),
        d: size(k_id, 2),
        dv: size(v_id, 2),
        window: sdpa.window,
        // Longer heads would unroll to more loads than such devices compile in a second.
        alone: cx.caps().software && size(k_id, 2).max(size(v_id, 2)) <= 256,
    };
    let y = cx.value(instr.outputs[0])?;
    let q = cx.value(q_id)?;
    let state = if sdpa.mask { None } else { cached(cx, k_id, v_id) };
    let mut optional = instr.inputs[3..].iter();
    let mask = if sdpa.mask { optional.next() } else { None };
    let sinks = if sdpa.sinks { optional.next() } else { None };
    // What is not there is bound to something that is, and not read.
    let sinks: BufId = sinks.map_or(Ok(q), |&id| cx.value(id))?;
    let (k, v, third) = match state {
        Some(state) => {
            cache::row_elems(cx, state, 0)?;
            cache::row_elems(cx, state, 1)?;
            (cx.kv(state, 0), cx.kv(state, 1), cx.table())
        }
        None => {
            let third = mask.map_or(Ok(q), |&id| cx.value(id))?;
            (cx.value(k_id)?, cx.value(v_id)?, third)
        }
    };
    // Over dense keys, rows of one sequence would see those of another.
    let by_token = [q_id, k_id, v_id].iter().any(|&id| cx.ty(id).depends_on(Symbol::T));
    cx.one_sequence |= state.is_none() && by_token;
    let dtype = if state.is_some() { cx.kv_dtype(0) } else { DType::F32 };
    let mask_planes = mask.is_some_and(|&id| cx.ty(id).rank() == 3);
    let job = Job {
        sdpa,
        form,
        dtype,
        is_cached: state.is_some(),
        mask_planes,
        types: [cx.ty(q_id).clone(), cx.ty(k_id).clone()],
    };
    job.push(cx, [q, k, v, third, sinks], y)
}

struct Job<'a> {
    sdpa: &'a Sdpa,
    form: Form,
    /// Of keys and values.
    dtype: DType,
    is_cached: bool,
    mask_planes: bool,
    /// Of q and k.
    types: [ValueType; 2],
}

/// Rows and keys of a step.
fn rows<'a>(info: &StepInfo<'a>, is_cached: bool, types: &[ValueType; 2]) -> Rows<'a> {
    if is_cached {
        return Rows::Cached(info.rows);
    }
    let [n_rows, n_keys] = types.each_ref().map(|ty| info.shape(ty)[0]);
    Rows::Dense { n_rows, n_keys }
}

impl Job<'_> {
    fn push(self, cx: &mut Lower<'_>, reads: [BufId; 5], y: BufId) -> Result<(), BackendError> {
        let (form, is_cached, mask_planes) = (self.form, self.is_cached, self.mask_planes);
        let types = self.types.clone();
        let parts = cx.scratch(move |info| form.part_bytes(rows(info, is_cached, &types)));
        let mut access = vec![Access::Read; reads.len()];
        access.extend([Access::Write; 2]);
        let mut binds: Vec<Bind> = reads.iter().map(|&b| b.into()).collect();
        binds.extend([y, parts].map(Bind::from));
        let keys: Vec<KernelKey> = form.tiles().iter().map(|&queries| self.key(&access, queries)).collect();
        let types = self.types.clone();
        let (scale, softcap) = (self.sdpa.scale, self.sdpa.softcap.unwrap_or(0.0));
        cx.push_any(&keys, &binds, move |info| {
            let rows = rows(info, is_cached, &types);
            let plan = form.plan(rows);
            let table = &info.table;
            // A window beyond every key is none.
            let window = form.window.map_or(0, |w| w.min(i32::MAX as usize));
            let words = [
                plan.n_tiles,
                plan.n_splits,
                plan.split,
                plan.first_split,
                0,
                window,
                0,
                rows.n_keys(),
                usize::from(mask_planes),
                table.positions,
                if is_cached { info.rows.len() } else { 1 },
                table.seqs,
                table.blocks,
                rows.n_rows(),
                plan.tiles_each,
                2 * form.key_chunks(),
                2 * form.value_chunks(),
            ];
            Call::new(form.n_groups(&plan), &words)
                .float(4, scale)
                .float(6, softcap)
                .variant(plan.variant)
        })?;
        let types = self.types.clone();
        let has_sinks = self.sdpa.sinks;
        let key = |access: &[_]| {
            KernelKey::new(Source::AttentionCombine, access)
                .flag("SINKS", has_sinks)
                .int("HEADS", form.heads.max(1) as u32)
                .int("DV", form.dv as u32)
                .int("NV", form.value_chunks() as u32)
        };
        cx.kernel(key, &[parts, reads[4]], &[y], move |info| {
            let rows = rows(info, is_cached, &types);
            let plan = form.plan(rows);
            let n = rows.n_rows() * form.heads;
            let threads = if plan.n_splits > 1 {
                n * 2 * form.value_chunks()
            } else {
                0
            };
            Call::new(threads.div_ceil(GROUP), &[n, plan.n_splits])
        })
    }

    fn key(&self, access: &[Access], queries: usize) -> KernelKey {
        let form = &self.form;
        let source = if form.alone {
            Source::AttentionAlone
        } else {
            Source::AttentionTogether
        };
        // Heads begin at whole chunks of eight, and those at whole vectors of four words.
        let (k_eights, v_eights) = (form.d.is_multiple_of(8), form.dv.is_multiple_of(8));
        let vectors = self.dtype != DType::Q8_0;
        let n = |n: usize| n as u32;
        let key = KernelKey::new(source, access)
            .flag("CACHED", self.is_cached)
            .flag("CAUSAL", self.sdpa.causal)
            .flag("SINKS", self.sdpa.sinks)
            .flag("MASK", self.sdpa.mask)
            .flag("K_EIGHTS", k_eights)
            .flag("V_EIGHTS", v_eights)
            .flag("K_WIDE", k_eights && vectors)
            .flag("V_WIDE", v_eights && vectors)
            .int("HEADS", n(form.heads.max(1)))
            .int("GROUPS", n(form.groups))
            .int("PER_GROUP", n(form.per_group()))
            .int("D", n(form.d))
            .int("DV", n(form.dv))
            .int("NK", n(form.key_chunks()))
            .int("NV", n(form.value_chunks()))
            .int("QUERIES", n(queries))
            .int("SLICES", n(GROUP / form.value_chunks()))
            .int("THREADS", n(plan::THREADS))
            .int("TWO", 2)
            .int("FOUR", 4)
            .int("BLOCK", n(BLOCK_TOKENS));
        cache::define(key, self.dtype)
    }
}
