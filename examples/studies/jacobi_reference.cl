kernel void plain_sweep(const int WIDTH, const int HEIGHT, global const float *now, global float *next)
{
    const int x = get_global_id(0), y = get_global_id(1), at = y * WIDTH + x;
    const bool inside = x > 0 && y > 0 && x < WIDTH - 1 && y < HEIGHT - 1;
    next[at] = inside ? 0.25f * (now[at - 1] + now[at + 1] + now[at - WIDTH] + now[at + WIDTH]) : now[at];
}
