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
#for H TWO
    queries[({{I}} * NK + {{C}}) * 2u + {{H}}] = query4(place{{I}}, 8u * {{C}} + 4u * {{H}});
#endfor
#endfor
#for C NV
    acc[({{I}} * NV + {{C}}) * 2u] = vec4<f32>();
    acc[({{I}} * NV + {{C}}) * 2u + 1u] = vec4<f32>();
#endfor
#endfor
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
#for I QUERIES
    if tile.first + {{I}} < tile.n_queries {
        if p(1u) > 1u {
            let stats = stats_at(place{{I}}, split);
            parts[stats] = top[{{I}}];
            parts[stats + 1u] = sum[{{I}}];
            let at = part_at(place{{I}}, split);
#for C NV
#for L FOUR
            parts[at + 8u * {{C}} + {{L}}] = acc[({{I}} * NV + {{C}}) * 2u][{{L}}];
            parts[at + 8u * {{C}} + 4u + {{L}}] = acc[({{I}} * NV + {{C}}) * 2u + 1u][{{L}}];
#endfor
#endfor
        } else {
            let factor = last_factor(place{{I}}, top[{{I}}], sum[{{I}}]);
#for C NV
#for L FOUR
            if 8u * {{C}} + {{L}} < DV {
                y[place{{I}} * DV + 8u * {{C}} + {{L}}] = acc[({{I}} * NV + {{C}}) * 2u][{{L}}] * factor;
            }
            if 8u * {{C}} + 4u + {{L}} < DV {
                y[place{{I}} * DV + 8u * {{C}} + 4u + {{L}}] = acc[({{I}} * NV + {{C}}) * 2u + 1u][{{L}}] * factor;
            }
#endfor
#endfor
        }
    }
#endfor
}
