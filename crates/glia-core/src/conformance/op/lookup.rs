//! Lookups: rows of tables of every dtype, ids of every width, ids that do not exist.

use super::{ids, values, w, x};
use crate::conformance::case::List;
use crate::{DType, Op};

pub(super) fn add(list: &mut List) {
    let i32 = DType::I32;
    for &dtype in DType::ALL.iter().filter(|d| d.is_float() || d.is_quantized()) {
        let width = 2 * dtype.block_elems().max(8);
        let inputs = vec![ids(i32, &[3, 0, 4, 4, 1]), w(dtype, &[5, width])];
        list.op_for(format!("{dtype}_5x{width}"), Op::TokenEmbed, inputs, dtype);
    }
    // Denormals of F16 are normal numbers of F32.
    for dtype in [DType::F16, DType::Q8_0, DType::Q4_0] {
        let inputs = vec![ids(i32, &[3, 0, 4]), w(dtype, &[5, 64]).sized(5e-5)];
        list.op_for(format!("{dtype}_denormal"), Op::TokenEmbed, inputs, dtype);
    }
    for width in [1, 7, 33, 1000] {
        let inputs = vec![ids(i32, &[2, 6, 0]), w(DType::F32, &[7, width])];
        list.op_for(format!("f32_width_{width}"), Op::TokenEmbed, inputs, DType::F32);
    }
    for dtype in [DType::I64, DType::I16, DType::I8, DType::U8] {
        let inputs = vec![ids(dtype, &[2, 6, 0]), w(DType::F32, &[7, 12])];
        list.op_for(format!("ids_{dtype}"), Op::TokenEmbed, inputs, DType::F32);
        let inputs = vec![x(DType::F32, &[7, 3]), ids(dtype, &[2, 6, 0, 6])];
        list.op(format!("ids_{dtype}"), Op::Gather { axis: 0 }, inputs);
    }
    list.op_for(
        "no_ids",
        Op::TokenEmbed,
        vec![ids(i32, &[]), w(DType::F32, &[7, 12])],
        DType::F32,
    );
    let many: Vec<i32> = (0..300).map(|i| i * 37 % 500).collect();
    list.op_for(
        "many_ids",
        Op::TokenEmbed,
        vec![ids(i32, &many), w(DType::F32, &[500, 20])],
        DType::F32,
    );
    let activation = vec![ids(i32, &[1, 2]), x(DType::F32, &[4, 6])];
    list.op_for("table_is_activation", Op::TokenEmbed, activation, DType::F32);
    refusals(list);
    gather(list);
}

fn refusals(list: &mut List) {
    for (name, bad) in [("id_too_large", &[0, 5][..]), ("id_negative", &[1, -1])] {
        let inputs = vec![ids(DType::I32, bad), w(DType::F32, &[5, 4])];
        let says = if bad[1] == 5 { &["5"][..] } else { &["-1"] };
        list.refused(name, Op::TokenEmbed, inputs, says);
        let inputs = vec![x(DType::F32, &[5, 4]), ids(DType::I32, bad)];
        list.refused(name, Op::Gather { axis: 0 }, inputs, says);
    }
    // The low 32 bits of these are ids that exist.
    for (name, bad, says) in [
        ("id_beyond_32_bits", 4_294_967_297.0, &["4294967297"][..]),
        ("id_below_32_bits", -4_294_967_295.0, &["-4294967295"]),
    ] {
        let far = || values(DType::I64, &[2], &[0.0, bad]);
        list.refused(name, Op::TokenEmbed, vec![far(), w(DType::F32, &[5, 4])], says);
        list.refused(name, Op::Gather { axis: 0 }, vec![x(DType::F32, &[5, 4]), far()], says);
    }
}

fn gather(list: &mut List) {
    let i32 = DType::I32;
    for axis in 0..3 {
        let inputs = vec![x(DType::F32, &[3, 4, 6]), ids(i32, &[2, 0, 2, 1])];
        list.op(format!("f32_3x4x6_axis{axis}"), Op::Gather { axis }, inputs);
    }
    for dtype in [
        DType::F16,
        DType::BF16,
        DType::F64,
        DType::I32,
        DType::I64,
        DType::I8,
        DType::U8,
        DType::Bool,
    ] {
        let inputs = vec![x(dtype, &[5, 7]), ids(i32, &[4, 0, 3])];
        list.op(format!("{dtype}_5x7"), Op::Gather { axis: 0 }, inputs);
    }
    for dtype in [DType::Q8_0, DType::Q4_0, DType::Q4_K, DType::Q6_K] {
        let width = dtype.block_elems();
        let inputs = vec![w(dtype, &[5, width]), ids(i32, &[4, 0, 3])];
        list.op(format!("{dtype}_rows"), Op::Gather { axis: 0 }, inputs);
    }
    list.op(
        "f32_no_ids",
        Op::Gather { axis: 0 },
        vec![x(DType::F32, &[5, 7]), ids(i32, &[])],
    );
    list.op(
        "f32_vector",
        Op::Gather { axis: 0 },
        vec![x(DType::F32, &[9]), ids(i32, &[8, 8, 0])],
    );
    list.op(
        "f32_no_width",
        Op::Gather { axis: 0 },
        vec![x(DType::F32, &[5, 0]), ids(i32, &[1, 2])],
    );
    let many: Vec<i32> = (0..200).map(|i| i * 13 % 64).collect();
    list.op(
        "f32_many",
        Op::Gather { axis: 0 },
        vec![x(DType::F32, &[64, 65]), ids(i32, &many)],
    );
}
