// One step of particles that fall, are dragged, and count how often they hit the floor. Parameters: WG, WPT.
#ifndef WPT  // particles per work-item
#define WPT 1
#endif

typedef struct {
    float3 position;
    float3 velocity;
    float mass;
    int hits[2];  // of the floor, of a wall
} Particle;

typedef struct {
    float3 gravity;
    float step;
    float drag;
    float wall;
} World;

kernel void advance(const int N, const World world, global Particle *particles)
{
    const int first = get_global_id(0), stride = get_global_size(0);
    for (int w = 0; w < WPT; ++w) {
        const int i = first + w * stride;
        if (i >= N) return;
        const float3 force = world.gravity - (world.drag / particles[i].mass) * particles[i].velocity;
        const float3 velocity = particles[i].velocity + world.step * force;
        const float3 position = particles[i].position + world.step * velocity;
        particles[i].velocity = velocity;
        particles[i].position = position;
        particles[i].hits[0] += position.z < 0.0f;
        particles[i].hits[1] += fabs(position.x) > world.wall;
    }
}
