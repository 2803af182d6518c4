//! Ops that move elements: every plain dtype, quantised rows, every axis, empty pieces.

use super::{size_name, w, x};
use crate::conformance::case::List;
use crate::{DType, Op};

const PLAIN: [DType; 9] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I8,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::Bool,
];

pub(super) fn add(list: &mut List) {
    by_dtype(list);
    quantised(list);
    turns(list);
    pieces(list);
}

fn by_dtype(list: &mut List) {
    for dtype in PLAIN {
        let name = |shape: &[usize]| format!("{dtype}_{}", size_name(shape));
        let t = |shape: &[usize]| vec![x(dtype, shape)];
        let two = vec![x(dtype, &[2, 4]), x(dtype, &[3, 4])];
        list.op(name(&[3, 5]), Op::Reshape { dims: vec![5, -1] }, t(&[3, 5]));
        list.op(name(&[3, 5]), Op::Transpose { a: 0, b: 1 }, t(&[3, 5]));
        list.op(name(&[2, 3, 4]), Op::Permute { perm: vec![2, 0, 1] }, t(&[2, 3, 4]));
        let slice = Op::Slice {
            axis: 1,
            start: 1,
            end: Some(3),
        };
        list.op(name(&[3, 5]), slice, t(&[3, 5]));
        list.op(format!("{dtype}_two"), Op::Concat { axis: 0 }, two);
        let split = Op::Split {
            axis: 0,
            sizes: vec![1, 3],
        };
        list.op(name(&[4, 3]), split, t(&[4, 3]));
        list.op(name(&[3, 2]), Op::Repeat { axis: 0, n: 3 }, t(&[3, 2]));
    }
}

fn quantised(list: &mut List) {
    for dtype in [DType::Q8_0, DType::Q4_K] {
        let k = 2 * dtype.block_elems();
        let t = || vec![w(dtype, &[4, 3, k])];
        list.op(format!("{dtype}_rows"), Op::Reshape { dims: vec![12, -1] }, t());
        list.op(format!("{dtype}_rows"), Op::Transpose { a: 0, b: 1 }, t());
        list.op(format!("{dtype}_rows"), Op::Permute { perm: vec![1, 0, 2] }, t());
        list.op(
            format!("{dtype}_rows"),
            Op::Slice {
                axis: 0,
                start: 1,
                end: None,
            },
            t(),
        );
        list.op(format!("{dtype}_rows"), Op::Repeat { axis: 1, n: 2 }, t());
        list.op(
            format!("{dtype}_rows"),
            Op::Split {
                axis: 1,
                sizes: vec![2, 1],
            },
            t(),
        );
        list.op(
            format!("{dtype}_rows"),
            Op::Concat { axis: 0 },
            vec![w(dtype, &[1, k]), w(dtype, &[2, k])],
        );
        list.op(
            format!("{dtype}_columns"),
            Op::Concat { axis: 1 },
            vec![w(dtype, &[2, k]), w(dtype, &[2, k])],
        );
    }
}

fn turns(list: &mut List) {
    let t = |shape: &[usize]| vec![x(DType::F32, shape)];
    for (shape, a, b) in [
        (&[1, 7][..], 0, 1),
        (&[33, 65], 0, 1),
        (&[2, 3, 4], 0, 2),
        (&[2, 3, 4], 1, 2),
        (&[2, 3, 4], 1, 1),
        (&[2, 3, 4, 5], 1, 3),
        (&[0, 3], 0, 1),
        (&[128, 100], 1, 0),
    ] {
        list.op(
            format!("f32_{}_{a}_{b}", size_name(shape)),
            Op::Transpose { a, b },
            t(shape),
        );
    }
    for (shape, perm) in [
        (&[5][..], vec![0]),
        (&[3, 5, 7], vec![1, 2, 0]),
        (&[3, 5, 7], vec![0, 2, 1]),
        (&[3, 5, 7], vec![0, 1, 2]),
        (&[2, 3, 4, 5], vec![3, 1, 0, 2]),
        (&[2, 3, 1, 2, 3], vec![4, 2, 0, 3, 1]),
        (&[3, 0, 7], vec![2, 1, 0]),
    ] {
        let name = format!("f32_{}_by_{}", size_name(shape), size_name(&perm));
        list.op(name, Op::Permute { perm }, t(shape));
    }
    for (shape, dims) in [
        (&[3, 5, 8][..], vec![5, -1]),
        (&[6], vec![2, 3]),
        (&[1], vec![]),
        (&[], vec![1, 1]),
        (&[0, 4], vec![4, 0]),
        (&[2, 3, 4], vec![-1]),
    ] {
        let to: Vec<String> = dims.iter().map(|d: &i64| d.to_string().replace('-', "m")).collect();
        let name = format!(
            "f32_{}_to_{}",
            size_name(shape),
            if to.is_empty() { "scalar".into() } else { to.join("x") }
        );
        list.op(name, Op::Reshape { dims }, t(shape));
    }
    for (shape, axis, n) in [
        (&[2, 3, 4][..], 0, 3),
        (&[2, 3, 4], 1, 2),
        (&[2, 3, 4], 2, 2),
        (&[5], 0, 1),
        (&[3, 2], 0, 0),
        (&[2, 40, 64], 1, 4),
    ] {
        list.op(
            format!("f32_{}_axis{axis}_{n}_times", size_name(shape)),
            Op::Repeat { axis, n },
            t(shape),
        );
    }
}

fn pieces(list: &mut List) {
    let f32 = DType::F32;
    for axis in 0..3 {
        for (name, start, end) in [
            ("middle", 1, Some(3)),
            ("rest", 2, None),
            ("all", 0, None),
            ("nothing", 1, Some(1)),
            ("last", 3, Some(4)),
        ] {
            let op = Op::Slice { axis, start, end };
            list.op(format!("f32_4x5x6_axis{axis}_{name}"), op, vec![x(f32, &[4, 5, 6])]);
        }
        let three = vec![x(f32, &[2, 4, 6]), x(f32, &[2, 4, 6]), x(f32, &[2, 4, 6])];
        list.op(format!("f32_three_axis{axis}"), Op::Concat { axis }, three);
        let mut sizes = [[2, 3, 4], [2, 3, 4], [2, 3, 4]];
        (sizes[0][axis], sizes[1][axis], sizes[2][axis]) = (5, 0, 1);
        let uneven = sizes.iter().map(|s| x(f32, s)).collect();
        list.op(format!("f32_uneven_axis{axis}"), Op::Concat { axis }, uneven);
        for (name, sizes) in [("even", vec![2, 2, 2]), ("uneven", vec![1, 0, 5]), ("whole", vec![6])] {
            let op = Op::Split { axis, sizes };
            list.op(format!("f32_axis{axis}_{name}"), op, vec![x(f32, &[6, 6, 6])]);
        }
    }
    list.op("f32_one", Op::Concat { axis: 0 }, vec![x(f32, &[3, 2])]);
    list.op(
        "f32_vectors",
        Op::Concat { axis: 0 },
        vec![x(f32, &[3]), x(f32, &[1]), x(f32, &[70])],
    );
    let wide = vec![x(f32, &[40, 130]), x(f32, &[40, 62])];
    list.op("f32_wide", Op::Concat { axis: 1 }, wide);
    list.op(
        "f32_wide",
        Op::Split {
            axis: 1,
            sizes: vec![64, 1, 127],
        },
        vec![x(f32, &[40, 192])],
    );
    list.op(
        "f32_wide",
        Op::Slice {
            axis: 1,
            start: 63,
            end: Some(191),
        },
        vec![x(f32, &[40, 192])],
    );
}
