// The end of a product whose threads have columns of their own.
#for I M
#for J OUTS
    if column + 8u * {{J}} <= end && first + {{I}} <= last {
#if GATED
        put_gated(first + {{I}}, column + 8u * {{J}}, sums[{{J}} * M + {{I}}], sums[({{J}} + {{OUTS}}) * M + {{I}}]);
#else
        put(first + {{I}}, column + 8u * {{J}}, sums[{{J}} * M + {{I}}]);
#endif
    }
#endfor
#endfor
