// CUDA as far as experiments/kernels.cu uses it, on a processor: the threads of a block take turns,
// and give way at barriers. The order of turns is in the environment (EMULATED_ORDER: 0 forth, 1
// back, else shuffled by that seed), so that a barrier that is missing makes results differ. Shared
// memory is full of NaN before a block begins.

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <random>
#include <vector>

using std::min;

#define __global__
#define __device__
#define __launch_bounds__(...)

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct Index {
    int x;
};

// All of it is each library's own.
namespace {

Index threadIdx, blockIdx;

namespace emulated {

float* shared;
std::vector<ucontext_t> fibers;
std::vector<char> finished;
static ucontext_t home;
void (*entry)(const void*);
const void* argument;
// One block at a time, whoever calls.
std::mutex alone;

void body() {
    const int me = threadIdx.x;
    entry(argument);
    finished[me] = 1;
    swapcontext(&fibers[me], &home);
}

void barrier() {
    const int me = threadIdx.x;
    swapcontext(&fibers[me], &home);
    threadIdx.x = me;
}

// All threads go on to the next barrier, in some order, until all are done.
void block(int threads, std::mt19937& chance, int order) {
    constexpr size_t STACK = 1 << 16;
    static std::vector<char> stacks;
    stacks.resize(threads * STACK);
    fibers.assign(threads, {});
    finished.assign(threads, 0);
    for (int i = 0; i < threads; i++) {
        getcontext(&fibers[i]);
        fibers[i].uc_stack.ss_sp = stacks.data() + i * STACK;
        fibers[i].uc_stack.ss_size = STACK;
        makecontext(&fibers[i], body, 0);
    }
    std::vector<int> turns(threads);
    for (int i = 0; i < threads; i++) turns[i] = order == 1 ? threads - 1 - i : i;
    for (int done = 0; done < threads;) {
        if (order > 1) std::shuffle(turns.begin(), turns.end(), chance);
        done = 0;
        for (int i : turns) {
            threadIdx.x = i;
            swapcontext(&home, &fibers[i]);
            done += finished[i];
        }
        if (done && done < threads) {
            std::fprintf(stderr, "%d of %d threads ended before a barrier of others\n", done, threads);
            std::abort();
        }
    }
}

template <typename T>
void launch(void (*kernel)(T), int blocks, int threads, int bytes, const T& given) {
    const std::lock_guard<std::mutex> lock(alone);
    const char* said = std::getenv("EMULATED_ORDER");
    const int order = said ? std::atoi(said) : 0;
    std::mt19937 chance(order);
    static void (*chosen)(T);
    chosen = kernel;
    entry = [](const void* at) { chosen(*static_cast<const T*>(at)); };
    argument = &given;
    std::vector<float4> memory(bytes / 16 + 1);
    shared = &memory[0].x;
    for (int i = 0; i < blocks; i++) {
        std::fill_n(shared, bytes / 4, std::numeric_limits<float>::quiet_NaN());
        blockIdx.x = i;
        block(threads, chance, order);
    }
}

}  // namespace emulated

}  // namespace

#define SHARED(name) float* name = emulated::shared
#define LAUNCH(kernel, blocks, threads, bytes, stream, argument) \
    emulated::launch(kernel, blocks, threads, bytes, argument)
#define __syncthreads emulated::barrier
