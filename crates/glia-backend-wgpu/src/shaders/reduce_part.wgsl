// How rows are shared among threads. Alone: a thread has a row of its own, and nothing is shared. Together: a
// workgroup of 64 has a row, and sums meet through subgroups or workgroup memory.
#if ALONE
const LANES = 1u;

fn row_of(group: u32, lane: u32) -> u32 {
    return group * 64u + lane;
}

fn lane_of(lane: u32) -> u32 {
    return 0u;
}

fn all_add(v: f32, lane: u32) -> f32 {
    return v;
}

fn all_max(v: f32, lane: u32) -> f32 {
    return v;
}
#else
const LANES = 64u;

var<workgroup> shared_sums: array<f32, 64>;

fn row_of(group: u32, lane: u32) -> u32 {
    return group;
}

fn lane_of(lane: u32) -> u32 {
    return lane;
}

fn all_add(v: f32, lane: u32) -> f32 {
    workgroupBarrier();
    shared_sums[lane] = v;
    for (var step = 32u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if lane < step {
            shared_sums[lane] += shared_sums[lane + step];
        }
    }
    workgroupBarrier();
    return shared_sums[0];
}

fn all_max(v: f32, lane: u32) -> f32 {
    workgroupBarrier();
    shared_sums[lane] = v;
    for (var step = 32u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if lane < step {
            let other = shared_sums[lane + step];
            shared_sums[lane] = select(shared_sums[lane], other, other > shared_sums[lane]);
        }
    }
    workgroupBarrier();
    return shared_sums[0];
}
#endif

// The kernel says what a row's threads do.
@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    each_row(row_of(group_id(wid, nwg), thread), thread);
}
