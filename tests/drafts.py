"""Kernels from which several tests of `autotune new` draft studies, and helpers that read the drafts."""

from __future__ import annotations

from autotune.study import Sketch, draft, scanned

LANES = """
#ifndef LANES
#define LANES 4
#endif
#ifndef WG
#define WG 64
#endif
__kernel void spmv(int rows, __global const int *starts, __global const int *cols, __global const float *vals,
                   __global const float *x, __global float *y)
{
    __local float part[WG];
    const int l = get_local_id(0), row = get_global_id(0) / LANES, lane = l % LANES;
    float sum = 0;
    if (row < rows)
        for (int k = starts[row] + lane; k < starts[row + 1]; k += LANES) sum += vals[k] * x[cols[k]];
    part[l] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane == 0 && row < rows) {
        for (int i = 1; i < LANES; ++i) sum += part[l + i];
        y[row] = sum;
    }
}
"""


RIM = """
#ifndef TX
#define TX 16
#endif
#ifndef TY
#define TY 4
#endif
#ifndef ROWS
#define ROWS 1
#endif
kernel void sweep(const uint nx, const uint ny, global const float *u, global float *v, global const float *f)
{
    const uint x = get_global_id(0), first = get_global_id(1) * ROWS;
    for (uint r = 0; r < ROWS; r++) {
        const uint y = first + r;
        if (x == 0 || y == 0 || x >= nx - 1 || y >= ny - 1) continue;
        const size_t i = y * nx + x;
        v[i] = 0.25f * (u[i - 1] + u[i + 1] + u[i - nx] + u[i + nx] + f[i]);
    }
}
"""


BODIES = """
#ifndef BLOCK
#define BLOCK 64
#endif
typedef struct { float4 place; float3 speed; float mass; int id; } Body;
typedef struct { float step; int count; int WG; } World;
kernel void move(const World world, global const Body *in, global Body *out)
{
    local float4 cache[BLOCK];
    const int i = get_global_id(0), l = get_local_id(0), n = world.count;
    float3 pull = 0.0f;
    const float3 here = in[min(i, n - 1)].place.xyz;
    for (int t = 0; t < n; t += BLOCK) {
        const int j = t + l;
        cache[l] = j < n ? (float4)(in[j].place.xyz, in[j].mass) : (float4)(0.0f);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < BLOCK; ++k) pull += (cache[k].xyz - here) * cache[k].w;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (i < n) {
        Body b = in[i];
        b.speed += pull * world.step;
        out[i] = b;
    }
}
"""


TILED = """
#ifndef TS
#define TS 16
#endif
#ifndef RTS
#define RTS 4
#endif
kernel void product(const int M, const int N, const int K, global const float *a, global const float *b,
                    global float *c)
{
    const int row = get_local_id(0), col = get_local_id(1);
    const int i = TS * get_group_id(0) + row, j = TS * get_group_id(1) + col;
    local float p[TS][TS], q[TS][TS];
    float sum[TS / RTS] = {0};
    for (int t = 0; t < K / TS; ++t) {
        for (int w = 0; w < TS / RTS; ++w) {
            p[col + w * RTS][row] = a[(TS * t + col + w * RTS) * M + i];
            q[col + w * RTS][row] = b[(j + w * RTS) * K + TS * t + row];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < TS; ++k)
            for (int w = 0; w < TS / RTS; ++w) sum[w] += p[k][row] * q[col + w * RTS][k];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int w = 0; w < TS / RTS; ++w) c[(j + w * RTS) * M + i] = sum[w];
}
"""


POINTED = """
#define COLS 16
kernel void f(global const float (*a)[COLS], global float b[][COLS], global float *p, const int n)
{
    global float (*c)[4][COLS] = (global float (*)[4][COLS])p;
    const int i = get_global_id(0);
    if (i >= n) return;
    global const float *row = a[i];
    for (int j = COLS - 1; j >= 0; j--) b[i][j] = row[j] + (*(a + i))[0];
    for (int k = 0; k < 4; k++) c[i][k][0] = c[i][k][COLS - 1] + *a[0];
}
"""


def sketched(source: str, *, guessed: bool = False) -> Sketch:
    return Sketch("a", "a.cl", source, scanned(source), {}, guessed=guessed)


def drafted(source: str) -> tuple[Sketch, list[str]]:
    sketch = sketched(source, guessed=True)
    return sketch, draft(sketch).splitlines()


def macros(**defaults: int) -> str:
    return "".join(f"#ifndef {name}\n#define {name} {value}\n#endif\n" for name, value in defaults.items())


def shape_of(lines: list[str], name: str) -> str:
    return next(line for line in lines if line.startswith(f"{name} = {{"))
