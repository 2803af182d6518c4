// All rows so far of one sequence as a dense tensor. Constants: 0 elements, 1 elements of a row, 2 where the blocks
// begin in the table.
#include prelude
@group(0) @binding(0) var<storage, read> cache: array<u32>;
@group(0) @binding(1) var<storage, read> table: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

#include kv
#include kv_read
#include entry_each

fn each(i: u32) {
    if i >= p(0u) {
        return;
    }
    let n = p(1u);
    let row = i / n;
    let place = table[p(2u) + row / {{BLOCK}}] * {{BLOCK}} + row % {{BLOCK}};
    y[i] = cached(place * row_words(n), n, i % n);
}
