// Eight elements of a row of x.
#include x4

fn x8(row: u32, c: u32) -> W8 {
    return W8(x4(row, 2u * c), x4(row, 2u * c + 1u));
}
