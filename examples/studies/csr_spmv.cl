// y = A * x for a sparse matrix by rows (CSR): LANES work-items share a row, and add up in local memory.
#ifndef WG
#define WG 64
#endif
#ifndef LANES
#define LANES 4
#endif

kernel void spmv(const int ROWS, global const int *indptr, global const int *indices, global const float *values,
                 global const float *x, global float *y)
{
    local float part[WG];
    const int item = get_local_id(0), lane = item % LANES;
    const int row = get_group_id(0) * (WG / LANES) + item / LANES;
    float sum = 0.0f;
    if (row < ROWS)
        for (int k = indptr[row] + lane; k < indptr[row + 1]; k += LANES)
            sum += values[k] * x[indices[k]];
    part[item] = sum;
    for (int half_lanes = LANES / 2; half_lanes > 0; half_lanes /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_lanes)
            part[item] += part[item + half_lanes];
    }
    if (lane == 0 && row < ROWS)
        y[row] = part[item];
}
