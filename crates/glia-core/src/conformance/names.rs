//! Names of the conformance cases, for the macro. Generated: `GLIA_BLESS=1 cargo test -p glia-core --features conformance names`.

#[doc(hidden)]
#[macro_export]
#[rustfmt::skip]
macro_rules! __conformance_names {
    ($then:path) => {
        $then! {
            matmul:
                f32_1x1x1 f32_1x5x3 f32_2x8x7 f32_3x7x8 f32_4x16x16 f32_5x17x31 f32_7x32x33 f32_8x64x64
                f32_16x15x65 f32_17x33x127 f32_33x40x257 f32_65x65x128 f32_1x300x512 f32_64x96x320 f32_128x130x100
                f32_0x5x8 f32_3x0x8 f32_3x5x0 f16_rows_3x5x32 f16_rows_2x33x70 bf16_rows_3x5x32 bf16_rows_2x33x70
                f32_1x1x32_block f32_1x37x64_block f32_3x16x96_block f32_6x33x64_block f32_19x70x32_block f32_bias
                f32_square f16_1x1x32 f16_1x37x64 f16_3x16x96 f16_6x33x64 f16_19x70x32 f16_bias f16_square
                bf16_1x1x32 bf16_1x37x64 bf16_3x16x96 bf16_6x33x64 bf16_19x70x32 bf16_bias bf16_square f64_1x1x32
                f64_1x37x64 f64_3x16x96 f64_6x33x64 f64_19x70x32 f64_bias f64_square q4_0_1x1x32 q4_0_1x37x64
                q4_0_3x16x96 q4_0_6x33x64 q4_0_19x70x32 q4_0_bias q4_0_square q4_1_1x1x32 q4_1_1x37x64 q4_1_3x16x96
                q4_1_6x33x64 q4_1_19x70x32 q4_1_bias q4_1_square q5_0_1x1x32 q5_0_1x37x64 q5_0_3x16x96 q5_0_6x33x64
                q5_0_19x70x32 q5_0_bias q5_0_square q5_1_1x1x32 q5_1_1x37x64 q5_1_3x16x96 q5_1_6x33x64
                q5_1_19x70x32 q5_1_bias q5_1_square q8_0_1x1x32 q8_0_1x37x64 q8_0_3x16x96 q8_0_6x33x64
                q8_0_19x70x32 q8_0_bias q8_0_square q8_1_1x1x32 q8_1_1x37x64 q8_1_3x16x96 q8_1_6x33x64
                q8_1_19x70x32 q8_1_bias q8_1_square q2_k_1x1x256 q2_k_1x37x512 q2_k_3x16x768 q2_k_6x33x512
                q2_k_19x70x256 q2_k_bias q2_k_square q3_k_1x1x256 q3_k_1x37x512 q3_k_3x16x768 q3_k_6x33x512
                q3_k_19x70x256 q3_k_bias q3_k_square q4_k_1x1x256 q4_k_1x37x512 q4_k_3x16x768 q4_k_6x33x512
                q4_k_19x70x256 q4_k_bias q4_k_square q5_k_1x1x256 q5_k_1x37x512 q5_k_3x16x768 q5_k_6x33x512
                q5_k_19x70x256 q5_k_bias q5_k_square q6_k_1x1x256 q6_k_1x37x512 q6_k_3x16x768 q6_k_6x33x512
                q6_k_19x70x256 q6_k_bias q6_k_square q8_k_1x1x256 q8_k_1x37x512 q8_k_3x16x768 q8_k_6x33x512
                q8_k_19x70x256 q8_k_bias q8_k_square iq1_s_1x1x256 iq1_s_1x37x512 iq1_s_3x16x768 iq1_s_6x33x512
                iq1_s_19x70x256 iq1_s_bias iq1_s_square iq1_m_1x1x256 iq1_m_1x37x512 iq1_m_3x16x768 iq1_m_6x33x512
                iq1_m_19x70x256 iq1_m_bias iq1_m_square iq2_xxs_1x1x256 iq2_xxs_1x37x512 iq2_xxs_3x16x768
                iq2_xxs_6x33x512 iq2_xxs_19x70x256 iq2_xxs_bias iq2_xxs_square iq2_xs_1x1x256 iq2_xs_1x37x512
                iq2_xs_3x16x768 iq2_xs_6x33x512 iq2_xs_19x70x256 iq2_xs_bias iq2_xs_square iq2_s_1x1x256
                iq2_s_1x37x512 iq2_s_3x16x768 iq2_s_6x33x512 iq2_s_19x70x256 iq2_s_bias iq2_s_square
                iq3_xxs_1x1x256 iq3_xxs_1x37x512 iq3_xxs_3x16x768 iq3_xxs_6x33x512 iq3_xxs_19x70x256 iq3_xxs_bias
                iq3_xxs_square iq3_s_1x1x256 iq3_s_1x37x512 iq3_s_3x16x768 iq3_s_6x33x512 iq3_s_19x70x256
                iq3_s_bias iq3_s_square iq4_nl_1x1x32 iq4_nl_1x37x64 iq4_nl_3x16x96 iq4_nl_6x33x64 iq4_nl_19x70x32
                iq4_nl_bias iq4_nl_square iq4_xs_1x1x256 iq4_xs_1x37x512 iq4_xs_3x16x768 iq4_xs_6x33x512
                iq4_xs_19x70x256 iq4_xs_bias iq4_xs_square tq1_0_1x1x256 tq1_0_1x37x512 tq1_0_3x16x768
                tq1_0_6x33x512 tq1_0_19x70x256 tq1_0_bias tq1_0_square tq2_0_1x1x256 tq2_0_1x37x512 tq2_0_3x16x768
                tq2_0_6x33x512 tq2_0_19x70x256 tq2_0_bias tq2_0_square mxfp4_1x1x32 mxfp4_1x37x64 mxfp4_3x16x96
                mxfp4_6x33x64 mxfp4_19x70x32 mxfp4_bias mxfp4_square nvfp4_1x1x64 nvfp4_1x37x128 nvfp4_3x16x192
                nvfp4_6x33x128 nvfp4_19x70x64 nvfp4_bias nvfp4_square q4_0_wide q4_0_no_rows q8_0_wide q8_0_no_rows
                q4_k_wide q4_k_no_rows q6_k_wide q6_k_no_rows f16_wide f16_no_rows f16_denormal_weights
                f16_denormal_rows f16_smallest_weights q4_0_denormal_scales q4_1_denormal_scales
                q5_0_denormal_scales q5_1_denormal_scales q8_0_denormal_scales iq4_nl_denormal_scales
                q6_k_denormal_scales f32_bias_f32 f32_bias_f16 f32_bias_bf16 f32_3x5x0_bias f32_vector
                f32_rank3_rows f32_rank4_rows f32_two_activations f32_batch_1x3x4x5 f32_batch_2x3x17x31
                f32_batch_3x1x8x64 f32_batch_4x9x9x9 f32_batch_2x0x3x4 f32_batch_0x2x3x4 f32_batch_of_batches
                f32_batch_of_weights f32_far_apart f32_special_rows f32_zero_rows q8_0_zero_rows q4_0_zero_rows
                q4_k_zero_rows q8_0_outliers;
            add:
                f32_7_with_7 f32_2x33_with_2x33 f32_3x1x5_with_4x5 f32_4x5_with_3x1x5 f32_6x5_with_5 f32_5_with_6x5
                f32_6x5_with_6x1 f32_6x1_with_1x5 f32_7_with_1 f32_1_with_7 f32_scalar_with_4
                f32_2x3x4x5_with_3x1x5 f32_2x1x4x1_with_1x3x1x5 f32_4x4_with_4 f32_4x4_with_4x1 f32_0x3_with_3
                f32_3x0_with_1 f32_65x130_with_130 f16_6x5_with_5 bf16_6x5_with_5 f64_6x5_with_5 f32_large
                f32_special f32_denormals;
            sub:
                f32_7_with_7 f32_2x33_with_2x33 f32_3x1x5_with_4x5 f32_4x5_with_3x1x5 f32_6x5_with_5 f32_5_with_6x5
                f32_6x5_with_6x1 f32_6x1_with_1x5 f32_7_with_1 f32_1_with_7 f32_scalar_with_4
                f32_2x3x4x5_with_3x1x5 f32_2x1x4x1_with_1x3x1x5 f32_4x4_with_4 f32_4x4_with_4x1 f32_0x3_with_3
                f32_3x0_with_1 f32_65x130_with_130 f16_6x5_with_5 bf16_6x5_with_5 f64_6x5_with_5 f32_large
                f32_special f32_denormals;
            mul:
                f32_7_with_7 f32_2x33_with_2x33 f32_3x1x5_with_4x5 f32_4x5_with_3x1x5 f32_6x5_with_5 f32_5_with_6x5
                f32_6x5_with_6x1 f32_6x1_with_1x5 f32_7_with_1 f32_1_with_7 f32_scalar_with_4
                f32_2x3x4x5_with_3x1x5 f32_2x1x4x1_with_1x3x1x5 f32_4x4_with_4 f32_4x4_with_4x1 f32_0x3_with_3
                f32_3x0_with_1 f32_65x130_with_130 f16_6x5_with_5 bf16_6x5_with_5 f64_6x5_with_5 f32_large
                f32_special f32_denormals;
            div:
                f32_7_with_7 f32_2x33_with_2x33 f32_3x1x5_with_4x5 f32_4x5_with_3x1x5 f32_6x5_with_5 f32_5_with_6x5
                f32_6x5_with_6x1 f32_6x1_with_1x5 f32_7_with_1 f32_1_with_7 f32_scalar_with_4
                f32_2x3x4x5_with_3x1x5 f32_2x1x4x1_with_1x3x1x5 f32_4x4_with_4 f32_4x4_with_4x1 f32_0x3_with_3
                f32_3x0_with_1 f32_65x130_with_130 f16_6x5_with_5 bf16_6x5_with_5 f64_6x5_with_5 f32_large
                f32_special f32_denormals;
            silu:
                f32_1 f32_3x17 f32_3x1001 f32_2x3x4x5 f32_scalar f32_0 f32_4x0 f16_5x33 bf16_5x33 f64_5x33
                f32_sweep f32_limits f32_large_numbers;
            gelu:
                f32_1 f32_3x17 f32_3x1001 f32_2x3x4x5 f32_scalar f32_0 f32_4x0 f16_5x33 bf16_5x33 f64_5x33
                f32_sweep f32_limits f32_large_numbers;
            gelu_tanh:
                f32_1 f32_3x17 f32_3x1001 f32_2x3x4x5 f32_scalar f32_0 f32_4x0 f16_5x33 bf16_5x33 f64_5x33
                f32_sweep f32_limits f32_large_numbers;
            relu:
                f32_1 f32_3x17 f32_3x1001 f32_2x3x4x5 f32_scalar f32_0 f32_4x0 f16_5x33 bf16_5x33 f64_5x33
                f32_sweep f32_limits f32_large_numbers;
            sigmoid:
                f32_1 f32_3x17 f32_3x1001 f32_2x3x4x5 f32_scalar f32_0 f32_4x0 f16_5x33 bf16_5x33 f64_5x33
                f32_sweep f32_limits f32_large_numbers;
            tanh:
                f32_1 f32_3x17 f32_3x1001 f32_2x3x4x5 f32_scalar f32_0 f32_4x0 f16_5x33 bf16_5x33 f64_5x33
                f32_sweep f32_limits f32_large_numbers;
            exp:
                f32_1 f32_3x17 f32_3x1001 f32_2x3x4x5 f32_scalar f32_0 f32_4x0 f16_5x33 bf16_5x33 f64_5x33
                f32_sweep f32_limits f32_overflow;
            scale:
                f32_by_3e_1 f32_by0e0 f32_by1e0 f32_by1e30 f16_4x9 bf16_4x9 f64_4x9 f32_scalar f32_0x5 f32_257x300
                f32_special;
            clamp:
                f32_both f32_above f32_below f32_point f32_nothing f16_4x9 bf16_4x9 f64_4x9 f32_scalar f32_0x5
                f32_257x300 f32_infinite;
            swiglu:
                f32_5x77 f16_5x77 bf16_5x77 f32_1 f32_2x3x4 f32_0x8 f32_33x1000 f32_limits;
            geglu:
                f32_5x77 f16_5x77 bf16_5x77 f32_1 f32_2x3x4 f32_0x8 f32_33x1000 f32_limits;
            geglu_tanh:
                f32_5x77 f16_5x77 bf16_5x77 f32_1 f32_2x3x4 f32_0x8 f32_33x1000 f32_limits;
            rms_norm:
                f32_3x1 f32_3x1_plus_one f32_3x2 f32_3x2_plus_one f32_3x3 f32_3x3_plus_one f32_3x15
                f32_3x15_plus_one f32_3x16 f32_3x16_plus_one f32_3x17 f32_3x17_plus_one f32_3x64 f32_3x64_plus_one
                f32_3x100 f32_3x100_plus_one f32_3x577 f32_3x577_plus_one f32_3x1024 f32_3x1024_plus_one
                f32_no_gain f32_20_gain f32_2x3x24_gain f32_2x1x3x8_gain f32_0x16_gain f32_260x96_gain f32_gain_f16
                f16_3x40 f32_gain_bf16 bf16_3x40 f32_row_sizes f32_zeros f32_epsilon;
            layer_norm:
                f32_3x1 f32_3x2 f32_3x3 f32_3x15 f32_3x16 f32_3x17 f32_3x64 f32_3x100 f32_3x577 f32_3x1024
                f32_no_gain f32_20_gain f32_2x3x24_gain f32_2x1x3x8_gain f32_0x16_gain f32_260x96_gain f32_gain_f16
                f16_3x40 f32_gain_bf16 bf16_3x40 f32_row_sizes f32_zeros f32_epsilon f32_shifted f32_two_columns;
            softmax:
                f32_1_axis0 f32_1000_axis0 f32_3x19_axis0 f32_3x19_axis1 f32_3x19x6_axis0 f32_3x19x6_axis1
                f32_3x19x6_axis2 f32_2x3x4x5_axis0 f32_2x3x4x5_axis1 f32_2x3x4x5_axis2 f32_2x3x4x5_axis3
                f32_0x4_axis0 f32_0x4_axis1 f32_3x513_axis0 f32_3x513_axis1 f32_4x20 f16_4x20 bf16_4x20
                f32_large_numbers f32_masked f32_nan_row f32_equal;
            token_embed:
                f32_5x16 f16_5x16 bf16_5x16 f64_5x16 q4_0_5x64 q4_1_5x64 q5_0_5x64 q5_1_5x64 q8_0_5x64 q8_1_5x64
                q2_k_5x512 q3_k_5x512 q4_k_5x512 q5_k_5x512 q6_k_5x512 q8_k_5x512 iq1_s_5x512 iq1_m_5x512
                iq2_xxs_5x512 iq2_xs_5x512 iq2_s_5x512 iq3_xxs_5x512 iq3_s_5x512 iq4_nl_5x64 iq4_xs_5x512
                tq1_0_5x512 tq2_0_5x512 mxfp4_5x64 nvfp4_5x128 f16_denormal q8_0_denormal q4_0_denormal f32_width_1
                f32_width_7 f32_width_33 f32_width_1000 ids_i64 ids_i16 ids_i8 ids_u8 no_ids many_ids
                table_is_activation id_too_large id_negative id_beyond_32_bits id_below_32_bits;
            gather:
                ids_i64 ids_i16 ids_i8 ids_u8 id_too_large id_negative id_beyond_32_bits id_below_32_bits
                f32_3x4x6_axis0 f32_3x4x6_axis1 f32_3x4x6_axis2 f16_5x7 bf16_5x7 f64_5x7 i32_5x7 i64_5x7 i8_5x7
                u8_5x7 bool_5x7 q8_0_rows q4_0_rows q4_k_rows q6_k_rows f32_no_ids f32_vector f32_no_width f32_many;
            rope:
                neox_f32_1x1x2_1_pairs neox_f32_3x2x16_8_pairs neox_f32_5x3x22_9_pairs neox_f32_2x4x64_32_pairs
                neox_f32_4x1x10_1_pairs neox_f32_40x8x128_64_pairs neox_f16 neox_bf16 neox_positions_i64
                neox_positions_i16 neox_positions_beyond_32_bits neox_f32_far neox_f32_at_zero neox_f32_scaled
                neox_f32_long_from_short neox_f32_long_from_long neox_f32_no_tokens interleaved_f32_1x1x2_1_pairs
                interleaved_f32_3x2x16_8_pairs interleaved_f32_5x3x22_9_pairs interleaved_f32_2x4x64_32_pairs
                interleaved_f32_4x1x10_1_pairs interleaved_f32_40x8x128_64_pairs interleaved_f16 interleaved_bf16
                interleaved_positions_i64 interleaved_positions_i16 interleaved_positions_beyond_32_bits
                interleaved_f32_far interleaved_f32_at_zero interleaved_f32_scaled interleaved_f32_long_from_short
                interleaved_f32_long_from_long interleaved_f32_no_tokens;
            sdpa:
                full_f32_1x1x1x1x8x8 full_f32_5x5x4x2x16x16 full_f32_3x17x6x2x20x12 full_f32_1x70x4x1x32x32
                full_f32_9x130x4x4x24x24 full_f32_70x70x2x1x64x64 full_f32_2x5x8x4x7x9 causal_f32_1x1x1x1x8x8
                causal_f32_5x5x4x2x16x16 causal_f32_3x17x6x2x20x12 causal_f32_1x70x4x1x32x32
                causal_f32_9x130x4x4x24x24 causal_f32_70x70x2x1x64x64 causal_f32_2x5x8x4x7x9
                window3_f32_1x1x1x1x8x8 window3_f32_5x5x4x2x16x16 window3_f32_3x17x6x2x20x12
                window3_f32_1x70x4x1x32x32 window3_f32_9x130x4x4x24x24 window3_f32_70x70x2x1x64x64
                window3_f32_2x5x8x4x7x9 window1_f32_1x1x1x1x8x8 window1_f32_5x5x4x2x16x16
                window1_f32_3x17x6x2x20x12 window1_f32_1x70x4x1x32x32 window1_f32_9x130x4x4x24x24
                window1_f32_70x70x2x1x64x64 window1_f32_2x5x8x4x7x9 window65_f32_1x1x1x1x8x8
                window65_f32_5x5x4x2x16x16 window65_f32_3x17x6x2x20x12 window65_f32_1x70x4x1x32x32
                window65_f32_9x130x4x4x24x24 window65_f32_70x70x2x1x64x64 window65_f32_2x5x8x4x7x9
                window_both_ways_f32_1x1x1x1x8x8 window_both_ways_f32_5x5x4x2x16x16
                window_both_ways_f32_3x17x6x2x20x12 window_both_ways_f32_1x70x4x1x32x32
                window_both_ways_f32_9x130x4x4x24x24 window_both_ways_f32_70x70x2x1x64x64
                window_both_ways_f32_2x5x8x4x7x9 softcap_f32_1x1x1x1x8x8 softcap_f32_5x5x4x2x16x16
                softcap_f32_3x17x6x2x20x12 softcap_f32_1x70x4x1x32x32 softcap_f32_9x130x4x4x24x24
                softcap_f32_70x70x2x1x64x64 softcap_f32_2x5x8x4x7x9 mask_f32_1x1x1x1x8x8 mask_f32_5x5x4x2x16x16
                mask_f32_3x17x6x2x20x12 mask_f32_1x70x4x1x32x32 mask_f32_9x130x4x4x24x24 mask_f32_70x70x2x1x64x64
                mask_f32_2x5x8x4x7x9 mask_per_head_f32_1x1x1x1x8x8 mask_per_head_f32_5x5x4x2x16x16
                mask_per_head_f32_3x17x6x2x20x12 mask_per_head_f32_1x70x4x1x32x32 mask_per_head_f32_9x130x4x4x24x24
                mask_per_head_f32_70x70x2x1x64x64 mask_per_head_f32_2x5x8x4x7x9 sinks_f32_1x1x1x1x8x8
                sinks_f32_5x5x4x2x16x16 sinks_f32_3x17x6x2x20x12 sinks_f32_1x70x4x1x32x32 sinks_f32_9x130x4x4x24x24
                sinks_f32_70x70x2x1x64x64 sinks_f32_2x5x8x4x7x9 everything_f32_1x1x1x1x8x8
                everything_f32_5x5x4x2x16x16 everything_f32_3x17x6x2x20x12 everything_f32_1x70x4x1x32x32
                everything_f32_9x130x4x4x24x24 everything_f32_70x70x2x1x64x64 everything_f32_2x5x8x4x7x9
                causal_f16_3x17x4x2x16x16 causal_bf16_3x17x4x2x16x16 causal_long_f32_2x700x4x2x65x66
                no_queries_f32_0x4x2x1x8x8 large_heads_f32_3x9x2x1x256x128 all_masked_f32 later_nan_f32
                later_nan_keys_f32 large_scores_f32 equal_scores_f32;
            reshape:
                f32_3x5 f16_3x5 bf16_3x5 f64_3x5 i8_3x5 i32_3x5 i64_3x5 u8_3x5 bool_3x5 q8_0_rows q4_k_rows
                f32_3x5x8_to_5xm1 f32_6_to_2x3 f32_1_to_scalar f32_scalar_to_1x1 f32_0x4_to_4x0 f32_2x3x4_to_m1;
            transpose:
                f32_3x5 f16_3x5 bf16_3x5 f64_3x5 i8_3x5 i32_3x5 i64_3x5 u8_3x5 bool_3x5 q8_0_rows q4_k_rows
                f32_1x7_0_1 f32_33x65_0_1 f32_2x3x4_0_2 f32_2x3x4_1_2 f32_2x3x4_1_1 f32_2x3x4x5_1_3 f32_0x3_0_1
                f32_128x100_1_0;
            permute:
                f32_2x3x4 f16_2x3x4 bf16_2x3x4 f64_2x3x4 i8_2x3x4 i32_2x3x4 i64_2x3x4 u8_2x3x4 bool_2x3x4 q8_0_rows
                q4_k_rows f32_5_by_0 f32_3x5x7_by_1x2x0 f32_3x5x7_by_0x2x1 f32_3x5x7_by_0x1x2
                f32_2x3x4x5_by_3x1x0x2 f32_2x3x1x2x3_by_4x2x0x3x1 f32_3x0x7_by_2x1x0;
            slice:
                f32_3x5 f16_3x5 bf16_3x5 f64_3x5 i8_3x5 i32_3x5 i64_3x5 u8_3x5 bool_3x5 q8_0_rows q4_k_rows
                f32_4x5x6_axis0_middle f32_4x5x6_axis0_rest f32_4x5x6_axis0_all f32_4x5x6_axis0_nothing
                f32_4x5x6_axis0_last f32_4x5x6_axis1_middle f32_4x5x6_axis1_rest f32_4x5x6_axis1_all
                f32_4x5x6_axis1_nothing f32_4x5x6_axis1_last f32_4x5x6_axis2_middle f32_4x5x6_axis2_rest
                f32_4x5x6_axis2_all f32_4x5x6_axis2_nothing f32_4x5x6_axis2_last f32_wide;
            concat:
                f32_two f16_two bf16_two f64_two i8_two i32_two i64_two u8_two bool_two q8_0_rows q8_0_columns
                q4_k_rows q4_k_columns f32_three_axis0 f32_uneven_axis0 f32_three_axis1 f32_uneven_axis1
                f32_three_axis2 f32_uneven_axis2 f32_one f32_vectors f32_wide;
            split:
                f32_4x3 f16_4x3 bf16_4x3 f64_4x3 i8_4x3 i32_4x3 i64_4x3 u8_4x3 bool_4x3 q8_0_rows q4_k_rows
                f32_axis0_even f32_axis0_uneven f32_axis0_whole f32_axis1_even f32_axis1_uneven f32_axis1_whole
                f32_axis2_even f32_axis2_uneven f32_axis2_whole f32_wide;
            repeat:
                f32_3x2 f16_3x2 bf16_3x2 f64_3x2 i8_3x2 i32_3x2 i64_3x2 u8_3x2 bool_3x2 q8_0_rows q4_k_rows
                f32_2x3x4_axis0_3_times f32_2x3x4_axis1_2_times f32_2x3x4_axis2_2_times f32_5_axis0_1_times
                f32_3x2_axis0_0_times f32_2x40x64_axis1_4_times;
            cast:
                f32_to_f32 f32_to_f16 f32_to_bf16 f32_to_f64 f32_to_i8 f32_to_i16 f32_to_i32 f32_to_i64 f32_to_u8
                f32_to_bool f16_to_f32 f16_to_f16 f16_to_bf16 f16_to_f64 f16_to_i8 f16_to_i16 f16_to_i32 f16_to_i64
                f16_to_u8 f16_to_bool bf16_to_f32 bf16_to_f16 bf16_to_bf16 bf16_to_f64 bf16_to_i8 bf16_to_i16
                bf16_to_i32 bf16_to_i64 bf16_to_u8 bf16_to_bool f64_to_f32 f64_to_f16 f64_to_bf16 f64_to_f64
                f64_to_i8 f64_to_i16 f64_to_i32 f64_to_i64 f64_to_u8 f64_to_bool i8_to_f32 i8_to_f16 i8_to_bf16
                i8_to_f64 i8_to_i8 i8_to_i16 i8_to_i32 i8_to_i64 i8_to_u8 i8_to_bool i16_to_f32 i16_to_f16
                i16_to_bf16 i16_to_f64 i16_to_i8 i16_to_i16 i16_to_i32 i16_to_i64 i16_to_u8 i16_to_bool i32_to_f32
                i32_to_f16 i32_to_bf16 i32_to_f64 i32_to_i8 i32_to_i16 i32_to_i32 i32_to_i64 i32_to_u8 i32_to_bool
                i64_to_f32 i64_to_f16 i64_to_bf16 i64_to_f64 i64_to_i8 i64_to_i16 i64_to_i32 i64_to_i64 i64_to_u8
                i64_to_bool u8_to_f32 u8_to_f16 u8_to_bf16 u8_to_f64 u8_to_i8 u8_to_i16 u8_to_i32 u8_to_i64
                u8_to_u8 u8_to_bool bool_to_f32 bool_to_f16 bool_to_bf16 bool_to_f64 bool_to_i8 bool_to_i16
                bool_to_i32 bool_to_i64 bool_to_u8 bool_to_bool q4_0_to_f32 q4_1_to_f32 q5_0_to_f32 q5_1_to_f32
                q8_0_to_f32 q8_1_to_f32 q2_k_to_f32 q3_k_to_f32 q4_k_to_f32 q5_k_to_f32 q6_k_to_f32 q8_k_to_f32
                iq1_s_to_f32 iq1_m_to_f32 iq2_xxs_to_f32 iq2_xs_to_f32 iq2_s_to_f32 iq3_xxs_to_f32 iq3_s_to_f32
                iq4_nl_to_f32 iq4_xs_to_f32 tq1_0_to_f32 tq2_0_to_f32 mxfp4_to_f32 nvfp4_to_f32
                f16_denormals_to_f32 f32_edges_to_f32 f32_edges_to_f16 f32_edges_to_bf16 f32_edges_to_f64
                f32_edges_to_i8 f32_edges_to_i16 f32_edges_to_i32 f32_edges_to_i64 f32_edges_to_u8
                f32_edges_to_bool i64_edges_to_i32 i64_edges_to_i8 i64_edges_to_u8 i64_edges_to_f32
                i64_edges_to_i16 f32_to_f16_scalar f32_to_f16_0 f32_to_f16_2x0x3 f32_to_f16_65x129;
            sum:
                f32_1_axis0 f32_17_axis0 f32_3x19_axis0 f32_3x19_axis1 f32_3x19x6_axis0 f32_3x19x6_axis1
                f32_3x19x6_axis2 f32_2x3x4x5_axis0 f32_2x3x4x5_axis1 f32_2x3x4x5_axis2 f32_2x3x4x5_axis3
                f32_4x1000_axis0 f32_4x1000_axis1 f32_300x3_axis0 f32_300x3_axis1 f32_5x7_axis0_kept
                f32_5x7_axis1_kept f16_4x20 bf16_4x20 f64_4x20 f32_no_rows f32_special f32_nothing;
            mean:
                f32_1_axis0 f32_17_axis0 f32_3x19_axis0 f32_3x19_axis1 f32_3x19x6_axis0 f32_3x19x6_axis1
                f32_3x19x6_axis2 f32_2x3x4x5_axis0 f32_2x3x4x5_axis1 f32_2x3x4x5_axis2 f32_2x3x4x5_axis3
                f32_4x1000_axis0 f32_4x1000_axis1 f32_300x3_axis0 f32_300x3_axis1 f32_5x7_axis0_kept
                f32_5x7_axis1_kept f16_4x20 bf16_4x20 f64_4x20 f32_no_rows f32_special;
            argmax:
                f32_1_axis0 f32_50_axis0 f32_3x19_axis0 f32_3x19_axis1 f32_3x19x6_axis0 f32_3x19x6_axis1
                f32_3x19x6_axis2 f32_2x3000_axis0 f32_2x3000_axis1 f32_0x4_axis1 f16_4x20 bf16_4x20 f64_4x20
                f32_ties f32_all_equal f32_infinite f32_negative;
            topk:
                f32_50_k1 f32_3x50_k4 f32_3x50_k50 f32_2x2x9_k3 f32_3x5_k0 f32_2x1500_k40 f32_0x4_k2 f16_4x20
                bf16_4x20 f64_4x20 f32_ties f32_all_equal f32_infinite;
            kv_cache:
                heads_f32 heads_f16 one_head_f32 one_head_f16 odd_f32 odd_f16 large_f32 large_f16 flat_f32 flat_f16
                kept_as_f16 kept_as_q8_0;
            segment:
                attention_f32 attention_f32_fast attention_q8_0 attention_q8_0_fast attention_q4_k_fast
                attention_window_f32 attention_window_f32_fast attention_window_q8_0 attention_window_q8_0_fast
                attention_window_q4_k_fast attention_softcap_f32 attention_softcap_f32_fast attention_softcap_q8_0
                attention_softcap_q8_0_fast attention_softcap_q4_k_fast attention_long_rope_f32
                attention_long_rope_f32_fast attention_long_rope_q8_0 attention_long_rope_q8_0_fast
                attention_long_rope_q4_k_fast gated_mlp_f32 gated_mlp_f32_fast gated_mlp_q8_0 gated_mlp_q8_0_fast
                gated_mlp_q4_k_fast encoder_f32 encoder_f32_fast encoder_q8_0 encoder_q8_0_fast encoder_q4_k_fast
                tied_head_f32 tied_head_f32_fast tied_head_q8_0 tied_head_q8_0_fast tied_head_q4_k_fast decoder_f32
                decoder_f32_fast decoder_q8_0 decoder_q8_0_fast decoder_q4_k_fast views_f32 views_f32_fast
                views_q8_0 views_q8_0_fast views_q4_k_fast slices_f32 slices_f32_fast slices_q8_0 slices_q8_0_fast
                slices_q4_k_fast same_operand_f32 same_operand_f32_fast same_operand_q8_0 same_operand_q8_0_fast
                same_operand_q4_k_fast weights_as_views_f32 weights_as_views_f32_fast weights_as_views_q8_0
                weights_as_views_q8_0_fast weights_as_views_q4_k_fast many_outputs_f32 many_outputs_f32_fast
                many_outputs_q8_0 many_outputs_q8_0_fast many_outputs_q4_k_fast;
            state:
                append_one_by_one append_in_chunks append_long cache_of_f16 cache_of_f32 several_sequences window
                truncate_to_1 truncate_to_5 truncate_to_15 truncate_to_16 truncate_to_17 truncate_to_31
                truncate_to_32 truncate_to_63 truncate_to_64 truncate_to_65 truncate_to_99 truncate_to_nothing
                truncate_beyond truncate_again_and_again truncate_beside_others fork_at_0 fork_at_1 fork_at_16
                fork_at_40 fork_at_63 fork_at_64 fork_at_65 fork_at_70 fork_of_forks fork_then_roll_back rollback
                rollback_of_several cancel_anywhere refused_steps max_context max_state_bytes free_and_reuse;
            memory:
                around_matmul_f32 around_matmul_odd around_matmul_q8_0 around_add around_sub around_mul around_div
                around_scale around_clamp around_gelu around_silu around_geglu around_swiglu around_rms_norm
                around_layer_norm around_softmax around_transpose around_slice around_permute around_gather
                around_concat around_split around_repeat around_sum around_mean around_argmax around_cast
                around_topk around_rope around_sdpa outputs_outlive_later_steps keys_that_are_returned_stay
                inputs_of_programs_are_unchanged donated_to_matmul_f32 donated_to_matmul_odd donated_to_matmul_q8_0
                donated_to_add donated_to_sub donated_to_mul donated_to_div donated_to_scale donated_to_clamp
                donated_to_gelu donated_to_silu donated_to_geglu donated_to_swiglu donated_to_rms_norm
                donated_to_layer_norm donated_to_softmax donated_to_transpose donated_to_slice donated_to_permute
                donated_to_gather donated_to_concat donated_to_split donated_to_repeat donated_to_sum
                donated_to_mean donated_to_argmax donated_to_cast donated_to_topk donated_to_rope donated_to_sdpa
                donated_to_add_left donated_to_add_right donated_to_sub_left donated_to_sub_right
                donated_to_mul_left donated_to_mul_right donated_to_swiglu_left donated_to_swiglu_right
                donated_to_add_of_rows_and_columns donated_to_residual donated_to_product_and_bias
                donated_to_rms_norm_and_gain donated_to_layer_norm_gain_bias donated_to_cast_of_same_size
                donated_to_tanh_of_tanh donated_to_view_of_output donated_to_node_matmul donated_to_node_add
                donated_to_node_sub donated_to_node_mul donated_to_node_div donated_to_node_silu
                donated_to_node_gelu donated_to_node_gelu_tanh donated_to_node_relu donated_to_node_sigmoid
                donated_to_node_tanh donated_to_node_exp donated_to_node_scale donated_to_node_clamp
                donated_to_node_swiglu donated_to_node_geglu donated_to_node_geglu_tanh donated_to_node_rms_norm
                donated_to_node_layer_norm donated_to_node_softmax donated_to_node_token_embed
                donated_to_node_gather donated_to_node_rope donated_to_node_sdpa donated_to_node_reshape
                donated_to_node_transpose donated_to_node_permute donated_to_node_slice donated_to_node_concat
                donated_to_node_split donated_to_node_repeat donated_to_node_cast donated_to_node_sum
                donated_to_node_mean donated_to_node_argmax donated_to_node_topk;
            methods:
                supports_node_default_decoder supports_node_default_decoder_q8_0 supports_node_default_encoder
                supports_node_default_nodes supports_node_override_decoder supports_node_override_decoder_q8_0
                supports_node_override_encoder supports_node_override_nodes pack_default_decoder
                pack_default_decoder_q8_0 pack_default_encoder pack_default_nodes pack_override_decoder
                pack_override_decoder_q8_0 pack_override_encoder pack_override_nodes execute_node_default_decoder
                execute_node_default_decoder_q8_0 execute_node_default_encoder execute_node_default_nodes
                execute_node_override_decoder execute_node_override_decoder_q8_0 execute_node_override_encoder
                execute_node_override_nodes space_default_decoder space_default_decoder_q8_0 space_default_encoder
                space_default_nodes space_override_decoder space_override_decoder_q8_0 space_override_encoder
                space_override_nodes memory_hints_default_decoder memory_hints_default_decoder_q8_0
                memory_hints_default_encoder memory_hints_override_decoder memory_hints_override_decoder_q8_0
                memory_hints_override_encoder compile_default_decoder compile_default_decoder_q8_0
                compile_default_encoder compile_override_decoder compile_override_decoder_q8_0
                compile_override_encoder weight_bytes_default_decoder weight_bytes_default_decoder_q8_0
                weight_bytes_default_encoder weight_bytes_override_decoder weight_bytes_override_decoder_q8_0
                weight_bytes_override_encoder describe_default_decoder describe_default_decoder_q8_0
                describe_default_encoder describe_override_decoder describe_override_decoder_q8_0
                describe_override_encoder state_bytes_default_encoder state_bytes_override_decoder
                state_bytes_override_decoder_q8_0 state_bytes_override_encoder name support_is_consistent
                unsupported_ops_are_errors memory_hints space_is_constant interpreted_attention
                interpreted_attention_window interpreted_attention_softcap interpreted_attention_long_rope
                interpreted_gated_mlp interpreted_encoder interpreted_tied_head interpreted_decoder
                interpreted_views interpreted_slices interpreted_same_operand interpreted_weights_as_views
                interpreted_many_outputs round_trip_f32 round_trip_f16 round_trip_bf16 round_trip_f64 round_trip_i8
                round_trip_i16 round_trip_i32 round_trip_i64 round_trip_u8 round_trip_bool round_trip_q4_0
                round_trip_q4_1 round_trip_q5_0 round_trip_q5_1 round_trip_q8_0 round_trip_q8_1 round_trip_q2_k
                round_trip_q3_k round_trip_q4_k round_trip_q5_k round_trip_q6_k round_trip_q8_k round_trip_iq1_s
                round_trip_iq1_m round_trip_iq2_xxs round_trip_iq2_xs round_trip_iq2_s round_trip_iq3_xxs
                round_trip_iq3_s round_trip_iq4_nl round_trip_iq4_xs round_trip_tq1_0 round_trip_tq2_0
                round_trip_mxfp4 round_trip_nvfp4 programs_describe_themselves profiles_name_instructions
                state_bytes_count_rows weight_bytes_count_copies states_of_a_program_are_apart;
            threads:
                matmul_from_four add_from_four silu_from_four rms_norm_from_four softmax_from_four sdpa_from_four
                rope_from_four token_embed_from_four programs_from_four;
        }
    };
}
