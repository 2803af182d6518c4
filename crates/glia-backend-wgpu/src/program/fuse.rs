//! Which instructions become one kernel. What is fused is proved safe here: a value between fused instructions has no
//! other reader and is not returned, and every operand is made before the item that reads it.

use glia_core::{Binary, DType, Instr, Op, Segment, ValueId, ValueKind};

/// One or several instructions that are lowered together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// One alone.
    One(usize),
    /// Products of one value with several weights of one dtype.
    Products(Vec<usize>),
    /// A product, or a norm, whose result is added to a value of its shape.
    Added { instr: usize, add: usize },
    /// Two products of one value, of which one gates the other.
    Gate { gate: usize, up: usize, gated: usize },
    /// Norms and rotations of queries and keys, and the append to the cache.
    Heads(HeadsItem),
}

/// The instructions of [`Item::Heads`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeadsItem {
    pub q: Chain,
    pub k: Chain,
    pub cache: usize,
}

/// What happens to the heads of one value, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Where it begins: heads before the norm.
    pub x: ValueId,
    pub norm: Option<usize>,
    pub rope: Option<usize>,
    /// Where it ends.
    pub out: ValueId,
}

impl Item {
    /// Its instructions, in order.
    pub fn members(&self) -> Vec<usize> {
        match self {
            Item::One(i) => vec![*i],
            Item::Products(all) => all.clone(),
            Item::Added { instr, add } => vec![*instr, *add],
            Item::Gate { gate, up, gated } => vec![*gate.min(up), *gate.max(up), *gated],
            Item::Heads(heads) => {
                let mut all: Vec<usize> = heads.members().collect();
                all.sort_unstable();
                all
            }
        }
    }

    /// The last of its instructions.
    pub fn last(&self) -> usize {
        match self {
            Item::One(i) => *i,
            Item::Products(all) => all.last().copied().unwrap_or(0),
            Item::Added { add, .. } => *add,
            Item::Gate { gated, .. } => *gated,
            Item::Heads(heads) => heads.cache,
        }
    }
}

/// The instructions of a segment in groups, in an order in which every operand is there before it is read.
/// `takes_heads` says whether heads go into one kernel.
pub(super) fn items(segment: &Segment, takes_heads: &dyn Fn(&HeadsItem) -> bool) -> Vec<Item> {
    let uses = Uses::of(segment);
    let n = segment.instrs.len();
    // For each instruction the item that it belongs to, and where that item stands.
    let mut placed: Vec<Option<Item>> = vec![None; n];
    let mut taken = vec![false; n];
    for i in 0..n {
        if let Some(heads) = heads(segment, &uses, i).filter(takes_heads) {
            for member in heads.members() {
                taken[member] = true;
            }
            placed[i] = Some(Item::Heads(heads));
        } else if let Some((gate, up)) = gate(segment, &uses, i) {
            [gate, up, i].iter().for_each(|&member| taken[member] = true);
            placed[i] = Some(Item::Gate { gate, up, gated: i });
        }
    }
    for i in 0..n {
        if taken[i] {
            continue;
        }
        let together = products(segment, i);
        if together.len() > 1 && !together.iter().any(|&m| taken[m]) {
            together.iter().for_each(|&m| taken[m] = true);
            placed[i] = Some(Item::Products(together));
        } else if let Some(add) = added(segment, &uses, i)
            && !taken[add]
        {
            (taken[i], taken[add]) = (true, true);
            placed[add] = Some(Item::Added { instr: i, add });
        }
    }
    let one = |(i, item): (usize, Option<Item>)| item.or_else(|| (!taken[i]).then_some(Item::One(i)));
    placed.into_iter().enumerate().filter_map(one).collect()
}

impl HeadsItem {
    /// Its instructions.
    pub fn members(&self) -> impl Iterator<Item = usize> {
        let chains = [self.q.norm, self.q.rope, self.k.norm, self.k.rope];
        chains.into_iter().flatten().chain([self.cache])
    }
}

/// Who reads each value, by the value that owns the bytes.
struct Uses {
    readers: Vec<Vec<usize>>,
    made_by: Vec<Option<usize>>,
    returned: Vec<bool>,
}

impl Uses {
    fn of(segment: &Segment) -> Uses {
        let n = segment.values.len();
        let mut uses = Uses {
            readers: vec![Vec::new(); n],
            made_by: vec![None; n],
            returned: vec![false; n],
        };
        for (i, instr) in segment.instrs.iter().enumerate() {
            if instr.op.is_view() {
                continue;
            }
            for &id in &instr.inputs {
                let readers = &mut uses.readers[segment.resolve(id).index()];
                if readers.last() != Some(&i) {
                    readers.push(i);
                }
            }
            for &id in &instr.outputs {
                uses.made_by[id.index()] = Some(i);
            }
        }
        for &id in &segment.outputs {
            uses.returned[segment.resolve(id).index()] = true;
        }
        uses
    }

    /// The only reader of what an instruction makes, if it has one output that is not returned.
    fn only_reader(&self, instr: &Instr) -> Option<usize> {
        let [out] = instr.outputs[..] else { return None };
        match self.readers[out.index()][..] {
            [reader] if !self.returned[out.index()] => Some(reader),
            _ => None,
        }
    }
}

fn is_weight(segment: &Segment, id: ValueId) -> bool {
    matches!(segment.value(segment.resolve(id)).kind, ValueKind::Const(_))
}

/// A product with one packed weight.
fn is_product(segment: &Segment, instr: &Instr) -> bool {
    matches!(instr.op, Op::MatMul)
        && is_weight(segment, instr.inputs[1])
        && segment.value(instr.inputs[1]).ty.rank() == 2
        && instr.inputs.get(2).is_none_or(|&bias| is_weight(segment, bias))
}

/// Whether two products of one value could be those of one matrix, their weights below each other.
fn alike(segment: &Segment, a: &Instr, b: &Instr) -> bool {
    let ty = |id: ValueId| &segment.value(id).ty;
    is_product(segment, a)
        && is_product(segment, b)
        && a.inputs[0] == b.inputs[0]
        && a.inputs.len() == b.inputs.len()
        && ty(a.inputs[1]).dtype == ty(b.inputs[1]).dtype
        && ty(a.inputs[1]).dims[1] == ty(b.inputs[1]).dims[1]
}

/// The two products, of the gate and of what it gates, that only the instruction `i` reads.
fn gate(segment: &Segment, uses: &Uses, i: usize) -> Option<(usize, usize)> {
    let instr = &segment.instrs[i];
    let ([g, u], Op::Gated(_)) = (&instr.inputs[..], &instr.op) else {
        return None;
    };
    let made = |id: &ValueId| {
        let at = uses.made_by[id.index()]?;
        (uses.only_reader(&segment.instrs[at]) == Some(i)).then_some(at)
    };
    let (g, u) = (made(g)?, made(u)?);
    (g != u && alike(segment, &segment.instrs[g], &segment.instrs[u])).then_some((g, u))
}

/// The product `i` and up to two later ones that could share its kernel.
fn products(segment: &Segment, i: usize) -> Vec<usize> {
    let first = &segment.instrs[i];
    let later = (i + 1..segment.instrs.len()).filter(|&j| alike(segment, first, &segment.instrs[j]));
    std::iter::once(i).chain(later.take(2)).collect()
}

/// The addition that a product or norm may take along: its operand must have the shape of the result.
fn added(segment: &Segment, uses: &Uses, i: usize) -> Option<usize> {
    let instr = &segment.instrs[i];
    let fits = is_product(segment, instr) || matches!(instr.op, Op::RmsNorm { .. } | Op::LayerNorm { .. });
    let add = uses.only_reader(instr).filter(|_| fits)?;
    let reader = &segment.instrs[add];
    let [a, b] = reader.inputs[..] else { return None };
    let out = instr.outputs[0];
    let other = if a == out { b } else { a };
    let whole = segment.value(other).ty == segment.value(out).ty && segment.value(other).ty.dtype == DType::F32;
    let once = (a == out) != (b == out);
    (matches!(reader.op, Op::Binary(Binary::Add)) && whole && once).then_some(add)
}

/// The heads that are prepared for the cache append `i`.
fn heads(segment: &Segment, uses: &Uses, i: usize) -> Option<HeadsItem> {
    let cache = &segment.instrs[i];
    let state = cache.state.filter(|_| matches!(cache.op, Op::KvCache))?;
    let reads_state = |instr: &Instr| {
        let part = |i: usize| {
            segment
                .value(segment.resolve(*instr.inputs.get(i)?))
                .kind
                .clone()
                .into()
        };
        let of: [Option<ValueKind>; 2] = [part(1), part(2)];
        of == [Some(ValueKind::State(state, 0)), Some(ValueKind::State(state, 1))]
    };
    let attention = segment
        .instrs
        .iter()
        .find(|a| matches!(a.op, Op::Sdpa(_)) && reads_state(a))?;
    let k = chain(segment, uses, cache.inputs[0])?;
    let q = chain(segment, uses, attention.inputs[0])?;
    // Queries that are read before the append would not be there yet.
    let early = uses.readers[segment.resolve(q.out).index()].iter().any(|&r| r <= i);
    let last = [q.norm, q.rope].into_iter().flatten().all(|m| m < i);
    (!early && last && q.x != k.x).then_some(HeadsItem { q, k, cache: i })
}

/// The norm and rotation that lead to a value.
fn chain(segment: &Segment, uses: &Uses, out: ValueId) -> Option<Chain> {
    let made_by = |id: ValueId| uses.made_by[segment.resolve(id).index()];
    let out = segment.resolve(out);
    let mut chain = Chain {
        x: out,
        norm: None,
        rope: None,
        out,
    };
    let step = |chain: &Chain, wanted: &dyn Fn(&Op) -> bool| {
        let at = made_by(chain.x).filter(|&at| wanted(&segment.instrs[at].op))?;
        // What leads on must have no other reader; the end of the chain may have any.
        (chain.x == chain.out || uses.only_reader(&segment.instrs[at]).is_some()).then_some(at)
    };
    if let Some(at) = step(&chain, &|op| matches!(op, Op::Rope(_))) {
        (chain.rope, chain.x) = (Some(at), segment.instrs[at].inputs[0]);
    }
    if let Some(at) = step(&chain, &|op| matches!(op, Op::RmsNorm { .. }))
        && segment.value(segment.instrs[at].inputs[0]).ty.rank() == 3
    {
        (chain.norm, chain.x) = (Some(at), segment.instrs[at].inputs[0]);
    }
    // The kernel works where the heads lie: nothing else may read them.
    let root = segment.resolve(chain.x).index();
    let alone = uses.readers[root].len() == 1 && !uses.returned[root];
    let temp = matches!(segment.values[root].kind, ValueKind::Temp(_) | ValueKind::Dynamic);
    (alone && temp && chain.rope.is_some()).then_some(chain)
}
