/* y = factor * x, WPT elements for each work-item. */
#ifndef WG
#define WG 64
#endif
#ifndef WPT
#define WPT 1
#endif

kernel __attribute__((reqd_work_group_size(WG, 1, 1)))
void scale(const int N, const float factor, global const float *x, global float *y)
{
    const int first = (get_group_id(0) * WPT) * WG + get_local_id(0);
    for (int i = 0; i < WPT; ++i)
        if (first + i * WG < N)
            y[first + i * WG] = factor * x[first + i * WG];
}
