//! Ops that move elements: strided copies.

use glia_core::{BackendError, Instr, Op, Shape, ValueId};

use super::GROUP;
use crate::program::Lower;
use crate::shader::{Call, KernelKey, Source};

/// Most dimensions that a kernel walks.
const MAX_DIMS: usize = 8;

/// A walk over elements: sizes with strides on both sides, dimensions that follow on each other joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Walk {
    /// Size, and stride of each operand.
    dims: Vec<(usize, [usize; 2])>,
    pub offsets: [usize; 2],
}

impl Walk {
    /// Adds an inner dimension.
    pub fn dim(&mut self, size: usize, strides: [usize; 2]) {
        if size == 1 {
            return;
        }
        if let Some((outer, before)) = self.dims.last_mut()
            && before[0] == strides[0] * size
            && before[1] == strides[1] * size
        {
            *outer *= size;
            *before = strides;
            return;
        }
        self.dims.push((size, strides));
    }

    pub fn n_elems(&self) -> usize {
        self.dims.iter().map(|(size, _)| size).product()
    }

    /// The constants that `copy` and `binary` take.
    pub fn call(&self) -> Call {
        let n = self.n_elems();
        let mut call = Call::new(n.div_ceil(GROUP), &[n, self.dims.len()]);
        for (i, (size, strides)) in self.dims.iter().enumerate().take(MAX_DIMS) {
            // Sizes were checked to fit; strides are below them.
            call = call.word(2 + i, *size as u32);
            call = call.word(10 + i, strides[0] as u32).word(18 + i, strides[1] as u32);
        }
        call.word(26, self.offsets[0] as u32).word(27, self.offsets[1] as u32)
    }
}

/// Strides of a dense tensor.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// How the elements of input `i` get to output `o`.
fn walk(op: &Op, inputs: &[Shape], outputs: &[Shape], i: usize, o: usize) -> Walk {
    let (from, to) = (&inputs[i], &outputs[o]);
    let (own, target) = (strides(from), strides(to));
    let mut walk = Walk::default();
    match op {
        Op::Transpose { a, b } => {
            let mut perm: Vec<usize> = (0..from.rank()).collect();
            perm.swap(*a, *b);
            perm.iter()
                .enumerate()
                .for_each(|(d, &p)| walk.dim(to[d], [own[p], target[d]]));
        }
        Op::Permute { perm } => perm
            .iter()
            .enumerate()
            .for_each(|(d, &p)| walk.dim(to[d], [own[p], target[d]])),
        Op::Slice { axis, start, .. } => {
            walk.offsets[0] = start * own[*axis];
            (0..to.rank()).for_each(|d| walk.dim(to[d], [own[d], target[d]]));
        }
        Op::Split { axis, sizes } => {
            walk.offsets[0] = sizes[..o].iter().sum::<usize>() * own[*axis];
            (0..to.rank()).for_each(|d| walk.dim(to[d], [own[d], target[d]]));
        }
        Op::Concat { axis } => {
            walk.offsets[1] = inputs[..i].iter().map(|s| s[*axis]).sum::<usize>() * target[*axis];
            (0..from.rank()).for_each(|d| walk.dim(from[d], [own[d], target[d]]));
        }
        Op::Repeat { axis, n } => {
            for d in 0..from.rank() {
                let stride = target[d] * if d == *axis { *n } else { 1 };
                walk.dim(from[d], [own[d], stride]);
                if d == *axis {
                    walk.dim(*n, [0, target[d]]);
                }
            }
        }
        _ => {}
    }
    walk
}

pub(super) fn lower(cx: &mut Lower<'_>, instr: &Instr) -> Result<(), BackendError> {
    for i in 0..instr.inputs.len() {
        for o in 0..instr.outputs.len() {
            let (x, y) = (cx.value(instr.inputs[i])?, cx.value(instr.outputs[o])?);
            let types = |ids: &[ValueId]| cx.segment.types(ids);
            let (op, inputs, outputs) = (instr.op.clone(), types(&instr.inputs), types(&instr.outputs));
            cx.kernel(
                |access| KernelKey::new(Source::Copy, access),
                &[x],
                &[y],
                move |info| {
                    let shapes = |all: &[glia_core::ValueType]| all.iter().map(|ty| info.shape(ty)).collect::<Vec<_>>();
                    walk(&op, &shapes(&inputs), &shapes(&outputs), i, o).call()
                },
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_that_follow_on_each_other_join() {
        let mut walk = Walk::default();
        for (size, strides) in [(2, [60, 60]), (1, [7, 9]), (3, [20, 20]), (4, [5, 1]), (5, [1, 4])] {
            walk.dim(size, strides);
        }
        assert_eq!(walk.dims, [(6, [20, 20]), (4, [5, 1]), (5, [1, 4])]);
        assert_eq!(walk.n_elems(), 120);
        // Eight dimensions with one repeated still fit: no two neighbours of a repeated one stay apart.
        let shape = Shape::new(&[2; 8]);
        let out = shape.with_dim(3, 6);
        let walk = super::walk(&Op::Repeat { axis: 3, n: 3 }, &[shape], &[out], 0, 0);
        assert_eq!(walk.dims.len(), 3);
    }
}
