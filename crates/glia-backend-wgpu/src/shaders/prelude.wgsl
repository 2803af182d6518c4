// What every kernel begins with: the constants of the dispatch, and which workgroup this is.
struct Params {
    w: array<vec4<u32>, 8>,
}

#if IMMEDIATES
var<immediate> params: Params;
#else
@group(1) @binding(0) var<uniform> params: Params;
#endif

fn p(i: u32) -> u32 {
    return params.w[i / 4u][i % 4u];
}

fn pf(i: u32) -> f32 {
    return bitcast<f32>(p(i));
}

// Workgroups are folded into two dimensions, and a dispatch may begin in the middle.
fn group_id(wid: vec3<u32>, nwg: vec3<u32>) -> u32 {
    return wid.x + wid.y * nwg.x + p(31u);
}
