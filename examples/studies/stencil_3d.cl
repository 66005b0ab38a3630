// A 7-point stencil on a 3-D grid: each work-item walks PLANES planes upwards and keeps the three it needs.
#ifndef WG_X
#define WG_X 16
#endif
#ifndef WG_Y
#define WG_Y 4
#endif
#ifndef PLANES
#define PLANES 4
#endif
#define RIM 1
#define AT(z, y, x) (((z) * (NY + 2 * RIM) + (y)) * (NX + 2 * RIM) + (x))

kernel void stencil(const int NX, const int NY, const int NZ, constant float *weight, global const float *u,
                    global float *v)
{
    const int x = get_global_id(0), y = get_global_id(1), first = get_global_id(2) * PLANES;
    if (x >= NX || y >= NY)
        return;
    float below = u[AT(first, y + 1, x + 1)], here = u[AT(first + 1, y + 1, x + 1)];
    for (int z = first; z < min(first + PLANES, NZ); ++z) {
        const float above = u[AT(z + 2, y + 1, x + 1)];
        v[(z * NY + y) * NX + x] = weight[0] * here + weight[1] * (below + above)
            + weight[2] * (u[AT(z + 1, y, x + 1)] + u[AT(z + 1, y + 2, x + 1)])
            + weight[3] * (u[AT(z + 1, y + 1, x)] + u[AT(z + 1, y + 1, x + 2)]);
        below = here;
        here = above;
    }
}
