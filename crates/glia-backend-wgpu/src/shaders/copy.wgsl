// Moves 32-bit elements between strided views. Constants: 0 elements, 1 rank, 2.. sizes, 10.. source strides,
// 18.. target strides, 26 source offset, 27 target offset.
#include prelude
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

#include entry_each

fn each(i: u32) {
    if i >= p(0u) {
        return;
    }
    var rest = i;
    var source = p(26u);
    var place = p(27u);
    for (var d = p(1u); d > 0u; d--) {
        let size = p(1u + d);
        let at = rest % size;
        rest /= size;
        source += at * p(9u + d);
        place += at * p(17u + d);
    }
    y[place] = x[source];
}
