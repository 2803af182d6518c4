// The largest of several elements with its index, the lower index on ties. An index beyond the row means none yet.
struct Best {
    value: f32,
    at: u32,
}

fn better(a: Best, b: Best, n: u32) -> Best {
    if b.at >= n {
        return a;
    }
    if a.at >= n || b.value > a.value || (b.value == a.value && b.at < a.at) {
        return b;
    }
    return a;
}

#if ALONE
fn all_best(best: Best, n: u32, lane: u32) -> Best {
    return best;
}
#else
var<workgroup> shared_best: array<Best, 64>;

fn all_best(best: Best, n: u32, lane: u32) -> Best {
    workgroupBarrier();
    shared_best[lane] = best;
    for (var step = 32u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if lane < step {
            shared_best[lane] = better(shared_best[lane], shared_best[lane + step], n);
        }
    }
    workgroupBarrier();
    return shared_best[0];
}
#endif
