//! Products with weights of every dtype: one row as in decoding, 4 and 16 as with several sequences, 512 as in prefill.
//! Through the executor, on as many threads as the process may use; `kernels` measures one thread.

mod common;

use std::cell::OnceCell;
use std::collections::HashMap;

use common::{Lab, Work};
use criterion::Criterion;
use glia_core::{CostValue, DType, Dim, Op, Shape, Traffic, ValueType};
use glia_ir::GraphExecutor;

struct Product {
    dtype: DType,
    n: usize,
    k: usize,
    executor: OnceCell<GraphExecutor>,
}

impl Product {
    fn new(dtype: DType, n: usize, k: usize) -> Product {
        Product {
            dtype,
            n,
            k,
            executor: OnceCell::new(),
        }
    }

    fn work(&self, m: usize) -> Work {
        let value = |dtype, dims: [usize; 2], traffic| CostValue {
            dtype,
            shape: Shape::new(&dims),
            traffic,
        };
        let x = value(DType::F32, [m, self.k], Traffic::Activation);
        let w = value(self.dtype, [self.n, self.k], Traffic::Weight);
        let y = value(DType::F32, [m, self.n], Traffic::Activation);
        let cost = Op::MatMul.cost(&[x, w], &[y]);
        Work {
            bytes: cost.bytes(),
            ops: cost.ops,
            int8: self.dtype.is_quantized(),
        }
    }

    fn make(&self, lab: &Lab) -> GraphExecutor {
        let (dtype, n, k) = (self.dtype, self.n, self.k);
        let weights = HashMap::from([("w".to_owned(), common::weight(dtype, n, k))]);
        lab.executor(DType::F16, weights, |b| {
            let x = b.input("x", ValueType::new(DType::F32, [Dim::T, k.into()]))?;
            let w = b.weight("w", ValueType::fixed(dtype, &[n, k]))?;
            b.matmul("product", x, w, None)
        })
    }
}

fn products(c: &mut Criterion, lab: &Lab) {
    for dtype in common::weight_dtypes() {
        let mut group = c.benchmark_group(dtype.name());
        // Large enough to come from memory in every dtype, then small enough for 512 rows to be quick.
        let (mut large, mut small) = (Product::new(dtype, 16384, 4096), Product::new(dtype, 2048, 2048));
        for (product, m) in [(&mut large, 1), (&mut small, 512)] {
            let rows: &[usize] = if m == 1 { &[1, 4, 16] } else { &[512] };
            for &m in rows {
                let x = [("x", common::tensor(&[m, product.k]))];
                let work = product.work(m);
                lab.measure(&mut group, &format!("rows-{m}"), work, || {
                    if product.executor.get().is_none() {
                        let _ = product.executor.set(product.make(lab));
                    }
                    let executor = product.executor.get_mut().expect("just made");
                    executor.run(&x).expect("a product");
                    executor.reset();
                });
            }
        }
        group.finish();
    }
}

fn main() {
    let mut criterion = Lab::criterion();
    products(&mut criterion, &Lab::new(0));
    criterion.final_summary();
}
