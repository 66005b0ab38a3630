// A weighted blur of an image, (2R+1) x (2R+1) texels, read through a sampler that clamps to the edge.
#ifndef ROWS  // output rows per work-item
#define ROWS 1
#endif

kernel void blur(read_only image2d_t source, write_only image2d_t target, sampler_t smp, constant float *weights,
                 const int HEIGHT, const int R)
{
    const int x = get_global_id(0), y0 = get_global_id(1) * ROWS;
    for (int r = 0; r < ROWS; ++r) {
        const int y = y0 + r;
        if (y >= HEIGHT) return;
        float4 sum = 0.0f;
        for (int j = -R; j <= R; ++j)
            for (int i = -R; i <= R; ++i)
                sum += weights[i + R] * weights[j + R] * read_imagef(source, smp, (int2)(x + i, y + j));
        write_imagef(target, (int2)(x, y), sum);
    }
}
