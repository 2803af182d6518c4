// Attention for devices that run kernels on the main processor: a thread takes a tile of queries over one split of
// the keys, with nothing shared and every loop but that over keys unrolled. Constants: see the part.
#include prelude
#include attention_part

@compute @workgroup_size({{THREADS}})
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_id(wid, nwg) * {{THREADS}} + lane;
    let n_tiles = p(0u);
    let split = i / n_tiles / GROUPS;
    if split >= p(1u) {
        return;
    }
    let group = i / n_tiles % GROUPS;
    let tile = tile_of(i % n_tiles);
    let last = query_of(tile, QUERIES - 1u);
    let from_key = (p(3u) + split) * p(2u);
    let first = max(from_key, first_of(position_of(tile, tile.first)));
    let end = min(from_key + p(2u), end_of(tile, position_of(tile, last)));
    var queries: array<vec4<f32>, {{QUERIES}} * {{NK}} * 2u>;
    var acc: array<vec4<f32>, {{QUERIES}} * {{NV}} * 2u>;
    var top: array<f32, {{QUERIES}}>;
    var sum: array<f32, {{QUERIES}}>;
#for I QUERIES
    let query{{I}} = query_of(tile, {{I}});
    let place{{I}} = place_of(tile, query{{I}}, group);
    top[{{I}}] = LOWEST;
    sum[{{I}}] = 0.0;
#for C NK
    queries[({{I}} * NK + {{C}}) * 2u] = vec4<f32>();
    queries[({{I}} * NK + {{C}}) * 2u + 1u] = vec4<f32>();
#endfor
#for C NV
    acc[({{I}} * NV + {{C}}) * 2u] = vec4<f32>();
    acc[({{I}} * NV + {{C}}) * 2u + 1u] = vec4<f32>();
#endfor
#endfor
    // Such devices make a loop of its own of each load and store, and compile in the square of their number: these
    // are few, in a loop whose end the compiler does not know, and registers are chosen by comparison.
    for (var n = 0u; n < p(15u); n++) {
#for I QUERIES
        let given{{I}} = query4(place{{I}}, 4u * n);
#for C NK
        queries[({{I}} * NK + {{C}}) * 2u] = select(queries[({{I}} * NK + {{C}}) * 2u], given{{I}}, n == 2u * {{C}});
        queries[({{I}} * NK + {{C}}) * 2u + 1u] =
            select(queries[({{I}} * NK + {{C}}) * 2u + 1u], given{{I}}, n == 2u * {{C}} + 1u);
#endfor
#endfor
    }
    for (var j = first; j < end; j++) {
        let row = row_of_key(tile, j);
        let key = row * row_words(GROUPS * D);
#for I QUERIES
        var dot{{I}} = vec4<f32>();
#endfor
#for C NK
        let k{{C}} = key8(key, group, {{C}});
#for I QUERIES
        dot{{I}} = fma(queries[({{I}} * NK + {{C}}) * 2u], k{{C}}.a, dot{{I}});
        dot{{I}} = fma(queries[({{I}} * NK + {{C}}) * 2u + 1u], k{{C}}.b, dot{{I}});
#endfor
#endfor
#for I QUERIES
        let score{{I}} = score_of(tile, query{{I}}, place{{I}}, j, (dot{{I}}.x + dot{{I}}.y) + (dot{{I}}.z + dot{{I}}.w));
        let rise{{I}} = score{{I}}.value - top[{{I}}];
        let fall{{I}} = exp(-abs(rise{{I}}));
        let shrink{{I}} = select(1.0, fall{{I}}, rise{{I}} > 0.0);
        let weight{{I}} = select(0.0, select(fall{{I}}, 1.0, rise{{I}} > 0.0), score{{I}}.seen);
        top[{{I}}] = max(top[{{I}}], score{{I}}.value);
        sum[{{I}}] = fma(sum[{{I}}], shrink{{I}}, weight{{I}});
#endfor
        let value = row * row_words(GROUPS * DV);
#for C NV
        let v{{C}} = value8(value, group, {{C}});
#for I QUERIES
        acc[({{I}} * NV + {{C}}) * 2u] = added(acc[({{I}} * NV + {{C}}) * 2u], shrink{{I}}, weight{{I}}, v{{C}}.a, score{{I}}.seen);
        acc[({{I}} * NV + {{C}}) * 2u + 1u] = added(acc[({{I}} * NV + {{C}}) * 2u + 1u], shrink{{I}}, weight{{I}}, v{{C}}.b, score{{I}}.seen);
#endfor
#endfor
    }
    let n_splits = p(1u);
#for I QUERIES
    let is_there{{I}} = tile.first + {{I}} < tile.n_queries;
    let factor{{I}} = select(last_factor(place{{I}}, top[{{I}}], sum[{{I}}]), 1.0, n_splits > 1u);
    if is_there{{I}} && n_splits > 1u {
        let stats = stats_at(place{{I}}, split);
        parts[stats] = top[{{I}}];
        parts[stats + 1u] = sum[{{I}}];
    }
#endfor
    for (var n = 0u; n < p(16u); n++) {
#for I QUERIES
        var made{{I}} = vec4<f32>();
#for C NV
        made{{I}} = select(made{{I}}, acc[({{I}} * NV + {{C}}) * 2u], n == 2u * {{C}});
        made{{I}} = select(made{{I}}, acc[({{I}} * NV + {{C}}) * 2u + 1u], n == 2u * {{C}} + 1u);
#endfor
        made{{I}} *= factor{{I}};
        if is_there{{I}} {
            if n_splits > 1u {
                let at = part_at(place{{I}}, split) + 4u * n;
#for L FOUR
                parts[at + {{L}}] = made{{I}}[{{L}}];
#endfor
            } else {
                let at = place{{I}} * DV + 4u * n;
#for L FOUR
                if 4u * n + {{L}} < DV {
                    y[at + {{L}}] = made{{I}}[{{L}}];
                }
#endfor
            }
        }
#endfor
    }
}
