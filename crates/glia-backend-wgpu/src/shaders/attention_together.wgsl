// Attention, a workgroup of 64 for a tile of queries over one split of the keys, which it takes 64 by 64: first a
// thread for a key, scores of all queries; then eight threads for a query, weights; then a thread for eight elements
// of the values and every so-manieth key. Constants: see the part.
#include prelude
#include attention_part

// Scores of a query lie this far apart, so that threads of different queries meet no bank twice.
const STRIDE = 72u;

// Threads that share the elements of a value, each with its own keys.
const SLICES = {{SLICES}};

var<workgroup> queries: array<vec4<f32>, {{QUERIES}} * {{NK}} * 2u>;
var<workgroup> weights: array<f32, 576>;
var<workgroup> stats: array<f32, 64>;
var<workgroup> shrinks: array<f32, 8>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_id(wid, nwg);
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

    for (var e = lane; e < QUERIES * NK * 2u; e += 64u) {
        let place = place_of(tile, query_of(tile, e / (NK * 2u)), group);
        queries[e] = query4(place, e % (NK * 2u) * 4u);
    }
    // Of the query whose weights this thread makes.
    let own = min(lane / 8u, QUERIES - 1u);
    var top = LOWEST;
    var sum = 0.0;
    let chunk = lane % NV;
    let slice = lane / NV;
    var acc: array<vec4<f32>, {{QUERIES}} * 2u>;
#for I QUERIES
    acc[2u * {{I}}] = vec4<f32>();
    acc[2u * {{I}} + 1u] = vec4<f32>();
#endfor
    for (var from_tile = first; from_tile < end; from_tile += 64u) {
        workgroupBarrier();
        let n = min(64u, end - from_tile);
        // Scores.
        let j = from_tile + min(lane, n - 1u);
        let key = row_of_key(tile, j) * row_words(GROUPS * D);
#for I QUERIES
        var dot{{I}} = vec4<f32>();
#endfor
        for (var c = 0u; c < NK; c++) {
            let k = key8(key, group, c);
#for I QUERIES
            dot{{I}} = fma(queries[({{I}} * NK + c) * 2u], k.a, dot{{I}});
            dot{{I}} = fma(queries[({{I}} * NK + c) * 2u + 1u], k.b, dot{{I}});
#endfor
        }
#for I QUERIES
        {
            let query = query_of(tile, {{I}});
            let product = (dot{{I}}.x + dot{{I}}.y) + (dot{{I}}.z + dot{{I}}.w);
            let score = score_of(tile, query, place_of(tile, query, group), j, product);
            weights[{{I}} * STRIDE + lane] = select(LOWEST, score.value, lane < n);
        }
#endfor
        workgroupBarrier();
        // Weights: each thread has eight of the scores of its query.
        var highest = LOWEST;
        for (var s = lane % 8u; s < 64u; s += 8u) {
            highest = max(highest, weights[own * STRIDE + s]);
        }
        stats[lane] = highest;
        workgroupBarrier();
        highest = top;
        for (var s = 0u; s < 8u; s++) {
            highest = max(highest, stats[own * 8u + s]);
        }
        workgroupBarrier();
        let shrink = exp(top - highest);
        top = highest;
        var added_sum = 0.0;
        if lane / 8u < QUERIES {
            for (var s = lane % 8u; s < 64u; s += 8u) {
                let score = weights[own * STRIDE + s];
                let weight = select(exp(score - top), 0.0, score == LOWEST);
                weights[own * STRIDE + s] = weight;
                added_sum += weight;
            }
        }
        stats[lane] = added_sum;
        if lane % 8u == 0u && lane / 8u < QUERIES {
            shrinks[own] = shrink;
        }
        workgroupBarrier();
        sum *= shrink;
        for (var s = 0u; s < 8u; s++) {
            sum += stats[own * 8u + s];
        }
        // Values.
        if slice < SLICES {
#for I QUERIES
            acc[2u * {{I}}] *= shrinks[{{I}}];
            acc[2u * {{I}} + 1u] *= shrinks[{{I}}];
#endfor
            for (var s = slice; s < n; s += SLICES) {
                let value = row_of_key(tile, from_tile + s) * row_words(GROUPS * DV);
                let v = value8(value, group, chunk);
#for I QUERIES
                {
                    // What no query sees does not count, whatever it is.
                    let weight = weights[{{I}} * STRIDE + s];
                    acc[2u * {{I}}] = added(acc[2u * {{I}}], 1.0, weight, v.a, !(weight == 0.0));
                    acc[2u * {{I}} + 1u] = added(acc[2u * {{I}} + 1u], 1.0, weight, v.b, !(weight == 0.0));
                }
#endfor
            }
        }
    }
    // The threads that share elements add theirs up, one query after the other.
    workgroupBarrier();
    if lane % 8u == 0u && lane / 8u < QUERIES {
        stats[2u * own] = top;
        stats[2u * own + 1u] = sum;
    }
#for I QUERIES
    workgroupBarrier();
#for L FOUR
    weights[8u * lane + {{L}}] = acc[2u * {{I}}][{{L}}];
    weights[8u * lane + 4u + {{L}}] = acc[2u * {{I}} + 1u][{{L}}];
#endfor
    workgroupBarrier();
    if tile.first + {{I}} < tile.n_queries {
        let place = place_of(tile, tile.first + {{I}}, group);
        let largest = stats[2u * {{I}}];
        let whole = stats[2u * {{I}} + 1u];
        let factor = select(last_factor(place, largest, whole), 1.0, p(1u) > 1u);
        for (var e = lane; e < DV; e += 64u) {
            var total = 0.0;
            for (var s = 0u; s < SLICES; s++) {
                total += weights[8u * (s * NV + e / 8u) + e % 8u];
            }
            if p(1u) > 1u {
                parts[part_at(place, split) + e] = total;
            } else {
                y[place * DV + e] = total * factor;
            }
        }
        if p(1u) > 1u && lane == 0u {
            parts[stats_at(place, split)] = largest;
            parts[stats_at(place, split) + 1u] = whole;
        }
    }
#endfor
}
