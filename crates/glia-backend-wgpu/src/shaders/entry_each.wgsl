// A thread per element: the kernel says what `each` does.
@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    each(group_id(wid, nwg) * 64u + lane);
}
