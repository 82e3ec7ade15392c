// Networks of scikit-learn with two equal layers, trained and asked on a GPU: one block of threads
// for each network, whose weights stay in shared memory.
//
// A step is that of experiments/networks.py: rectified linear units, the mean log-loss of a batch,
// an L2 penalty of matrices, and Adam. Rows are gathered from tables, in the order that Python
// says; after an epoch the accuracy on held-out rows decides whether weights are kept, and whether
// the network is done.
//
// The compiler is told the shape: M numbers of a row from the left table, D from the right one,
// H units. Rows and units are padded to fours, with zeros that stay zeros. A thread has TR rows
// and four units of what a product makes; sums over rows stay in its registers from one part of a
// batch to the next.

#ifdef EMULATED
#include EMULATED
#else
#include <cuda_runtime.h>
#define SHARED(name)                   \
    extern __shared__ float4 name##_[]; \
    float* name = reinterpret_cast<float*>(name##_)
#define LAUNCH(kernel, blocks, threads, bytes, stream, argument) \
    kernel<<<blocks, threads, bytes, static_cast<cudaStream_t>(stream)>>>(argument)
#endif

namespace {

constexpr int up(int n, int to) { return (n + to - 1) / to * to; }

constexpr int XP = up(M + D, 4), MP = up(M, 4), HP = up(H, 4);
// Groups of rows, rows of a thread, and blocks that should fit on a processor at once. Wide rows
// leave shared memory for one block, which then has more threads. Rows of groups begin in other
// banks of shared memory, which eight rows of a thread would not.
#ifndef GROUPS
#define GROUPS (H <= 24 ? 29 : H > 60 && XP <= 32 ? 5 : 10)
#endif
#ifndef DEEP
#define DEEP (H <= 24 ? 7 : 10)
#endif
#ifndef BLOCKS
#define BLOCKS (H <= 60 ? 3 : XP <= 32 ? 2 : 1)
#endif
constexpr int GJ = HP / 4, GR = GROUPS, TR = DEEP;
constexpr int ROWS = GR * TR, BUSY = GR * GJ, THREADS = up(BUSY, 32);
// Rows of a thread in the gradients of matrices.
constexpr int TK = up(HP, GR) / GR, TP = up(XP, GR) / GR;
// Where matrices and biases lie in a row of a table of weights.
constexpr int W1 = 0, B1 = W1 + XP * HP, W2 = B1 + HP, B2 = W2 + HP * HP, W3 = B2 + HP;
constexpr int B3 = W3 + HP, SIZE = B3 + 4;
// Threads of the last groups read a little beyond what they need.
constexpr int SLACK = 32;
// Where all lies in shared memory.
constexpr int AT_X = SIZE, AT_A = AT_X + ROWS * XP + SLACK, AT_B = AT_A + ROWS * HP + SLACK;
constexpr int AT_PART = AT_B + ROWS * HP + SLACK, AT_G = AT_PART + up(GJ * (ROWS + 1), 4);
constexpr int AT_CODE = AT_G + up(ROWS, 4), AT_FLAG = AT_CODE + up(ROWS, 4);
constexpr int AT_SUM = AT_FLAG + 4, FLOATS = AT_SUM + THREADS;

static_assert(BUSY <= 256 && TR >= 3 && HP <= THREADS, "a shape that threads can share");
static_assert(GR * TK - HP <= SLACK && GR * TP - XP <= SLACK, "reads that stay in memory");
static_assert(FLOATS * 4 <= 227 * 1024, "a shape that fits into shared memory");

constexpr float BETA1 = 0.9, BETA2 = 0.999, EPSILON = 1e-8;
// From double precision: 1 - 0.999f is another number.
constexpr float REST1 = 1.0 - 0.9, REST2 = 1.0 - 0.999;

}  // namespace

// What Python hands over; each network is one of all copies.
struct Training {
    const float *left, *right;                // tables (., M) and (., D)
    const long long *left_at, *right_at;      // where those of a copy begin, (copies,)
    const int *known, *held;                  // twice the row plus its class, (copies, .)
    const int* orders;                        // positions in known, (epochs, known)
    const float* rates;                       // of Adam, (epochs x steps,)
    const int* active;                        // numbers of the copies to train, (blocks,)
    float *weights, *first, *second, *best;   // (copies, SIZE)
    int *score, *stale, *ran, *done;          // (copies,)
    void* stream;
    double tolerance;
    int blocks, pairs, n_known, n_held, batch, epochs, patience;
    float penalty;
};

struct Asking {
    const float* weights;  // (copies, SIZE)
    const float* draws;    // tables (., M) of count rows each
    const float* x;        // observations (places, D)
    const long long* at;   // where the table of a copy and a place begins, (copies, places)
    float* found;          // mean squared distances of probabilities to 1/2, (copies, places)
    void* stream;
    int copies, places, count;
};

namespace {

struct Thread {
    int id, row, unit;  // its number, its group of rows, and its group of units
    bool busy;
};

__device__ inline Thread thread() {
    const int id = threadIdx.x;
    return {id, id / GJ, id % GJ, id < BUSY};
}

__device__ inline float4 four(const float* at) { return *reinterpret_cast<const float4*>(at); }

template <int N>
__device__ inline void fetch(const float* at, float (&into)[N]) {
    if constexpr (N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            const float4 v = four(at + i);
            into[i] = v.x, into[i + 1] = v.y, into[i + 2] = v.z, into[i + 3] = v.w;
        }
    } else if constexpr (N % 2 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const float2 v = *reinterpret_cast<const float2*>(at + i);
            into[i] = v.x, into[i + 1] = v.y;
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) into[i] = at[i];
    }
}

__device__ inline void add(float (&to)[4], float a, float4 v) {
    to[0] += a * v.x, to[1] += a * v.y, to[2] += a * v.z, to[3] += a * v.w;
}

// Rows of a layer before its rectifier: in (., K), a matrix (K, HP) and a bias.
template <int K>
__device__ inline void layer(const float* in, const float* w, const float* bias, Thread me,
                             float (&out)[TR][4]) {
    const float4 start = four(bias + 4 * me.unit);
#pragma unroll
    for (int i = 0; i < TR; i++)
        out[i][0] = start.x, out[i][1] = start.y, out[i][2] = start.z, out[i][3] = start.w;
    const float* rows = in + me.row * TR * K;
    const float* columns = w + 4 * me.unit;
#pragma unroll 2
    for (int k = 0; k < K; k += 4) {
        const float4 w0 = four(columns + k * HP), w1 = four(columns + (k + 1) * HP);
        const float4 w2 = four(columns + (k + 2) * HP), w3 = four(columns + (k + 3) * HP);
#pragma unroll
        for (int i = 0; i < TR; i++) {
            const float4 v = four(rows + i * K + k);
            add(out[i], v.x, w0), add(out[i], v.y, w1), add(out[i], v.z, w2), add(out[i], v.w, w3);
        }
    }
}

__device__ inline void rectify(float (&rows)[TR][4]) {
#pragma unroll
    for (int i = 0; i < TR; i++)
#pragma unroll
        for (int q = 0; q < 4; q++) rows[i][q] = fmaxf(rows[i][q], 0.f);
}

__device__ inline void store(float* to, const float (&rows)[TR][4], Thread me) {
#pragma unroll
    for (int i = 0; i < TR; i++) {
        const float4 v = {rows[i][0], rows[i][1], rows[i][2], rows[i][3]};
        *reinterpret_cast<float4*>(to + (me.row * TR + i) * HP + 4 * me.unit) = v;
    }
}

// Leaves outputs of the second layer in registers, and their parts of the logits.
template <int K>
__device__ inline void forward(float* s, const float* bias, Thread me, float (&h)[TR][4]) {
    if (me.busy) {
        layer<K>(s + AT_X, s + W1, bias, me, h);
        rectify(h);
        store(s + AT_A, h, me);
    }
    __syncthreads();
    if (me.busy) {
        layer<HP>(s + AT_A, s + W2, s + B2, me, h);
        rectify(h);
        const float4 w = four(s + W3 + 4 * me.unit);
#pragma unroll
        for (int i = 0; i < TR; i++)
            s[AT_PART + me.unit * (ROWS + 1) + me.row * TR + i] =
                h[i][0] * w.x + h[i][1] * w.y + h[i][2] * w.z + h[i][3] * w.w;
    }
    __syncthreads();
}

__device__ inline float logit(const float* s, int row) {
    float sum = s[B3];
#pragma unroll 5
    for (int j = 0; j < GJ; j++) sum += s[AT_PART + j * (ROWS + 1) + row];
    return sum;
}

__device__ inline float sigmoid(float z) { return 1.f / (1.f + expf(-z)); }

// Rows of a copy: order says which of its codes; all of them in turn if there is none.
__device__ inline void gather(float* s, const Training& t, const int* codes, const int* order,
                              int rows, long long left_at, long long right_at, int id) {
    int* code = reinterpret_cast<int*>(s + AT_CODE);
    for (int r = id; r < ROWS; r += THREADS)
        code[r] = r < rows ? codes[order ? order[r] : r] : -1;
    __syncthreads();
#pragma unroll 4
    for (int i = id; i < ROWS * XP; i += THREADS) {
        const int c = code[i / XP], column = i % XP, row = c >> 1;
        float v = 0.f;
        if (c >= 0 && column < M) v = t.left[(left_at + row) * M + column];
        if (D > 0 && c >= 0 && column >= M && column < M + D) {
            const int pair = row < t.pairs ? row : row - t.pairs;
            v = t.right[(right_at + pair) * D + column - M];
        }
        s[AT_X + i] = v;
    }
    __syncthreads();
}

// Sums over the rows of a batch, of which a thread has some.
struct Gradients {
    float w1[TP][4], w2[TK][4], w3[4], b1[4], b2[4], b3;
};

__device__ inline void clear(Gradients& d) {
#pragma unroll
    for (int q = 0; q < 4; q++) {
#pragma unroll
        for (int p = 0; p < TP; p++) d.w1[p][q] = 0.f;
#pragma unroll
        for (int k = 0; k < TK; k++) d.w2[k][q] = 0.f;
        d.w3[q] = d.b1[q] = d.b2[q] = 0.f;
    }
    d.b3 = 0.f;
}

// The gradient of a matrix: rows below it times what comes from above, both in shared memory.
template <int N, int PITCH>
__device__ inline void outer(const float* below, const float* above, Thread me,
                             float (&sum)[N][4]) {
#pragma unroll 4
    for (int r = 0; r < ROWS; r++) {
        float v[N];
        fetch<N>(below + r * PITCH + me.row * N, v);
        const float4 d = four(above + r * HP + 4 * me.unit);
#pragma unroll
        for (int n = 0; n < N; n++) add(sum[n], v[n], d);
    }
}

__device__ inline void dot(float& sum, float4 a, float4 b) {
    sum += a.x * b.x;
    sum += a.y * b.y;
    sum += a.z * b.z;
    sum += a.w * b.w;
}

// A part of a batch: rows of x with their codes, and what they add to the gradients.
__device__ inline void part_of_batch(float* s, Thread me, int rows, float share, Gradients& d) {
    float h[TR][4];
    forward<XP>(s, s + B1, me, h);
    const int* code = reinterpret_cast<const int*>(s + AT_CODE);
    for (int r = me.id; r < ROWS; r += THREADS) {
        const float g = r < rows ? (sigmoid(logit(s, r)) - (code[r] & 1)) * share : 0.f;
        s[AT_G + r] = g;
        d.b3 += g;
    }
    __syncthreads();
    if (me.busy) {
        const float4 w = four(s + W3 + 4 * me.unit);
        const float w3[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int i = 0; i < TR; i++) {
            const float g = s[AT_G + me.row * TR + i];
#pragma unroll
            for (int q = 0; q < 4; q++) {
                d.w3[q] += h[i][q] * g;
                h[i][q] = h[i][q] > 0.f ? g * w3[q] : 0.f;
                d.b2[q] += h[i][q];
            }
        }
        store(s + AT_B, h, me);
    }
    __syncthreads();
    if (me.busy) {
        outer<TK, HP>(s + AT_A, s + AT_B, me, d.w2);
        // What comes through the second layer, of units GJ apart: so threads read other banks.
#pragma unroll
        for (int i = 0; i < TR; i++) h[i][0] = h[i][1] = h[i][2] = h[i][3] = 0.f;
#pragma unroll 2
        for (int j = 0; j < HP; j += 4) {
            float4 w[4];
#pragma unroll
            for (int q = 0; q < 4; q++) w[q] = four(s + W2 + (me.unit + GJ * q) * HP + j);
#pragma unroll
            for (int i = 0; i < TR; i++) {
                const float4 v = four(s + AT_B + (me.row * TR + i) * HP + j);
#pragma unroll
                for (int q = 0; q < 4; q++) dot(h[i][q], v, w[q]);
            }
        }
    }
    __syncthreads();
    if (me.busy) {
#pragma unroll
        for (int i = 0; i < TR; i++)
#pragma unroll
            for (int q = 0; q < 4; q++) {
                float* a = s + AT_A + (me.row * TR + i) * HP + me.unit + GJ * q;
                *a = *a > 0.f ? h[i][q] : 0.f;
                d.b1[q] += *a;
            }
    }
    __syncthreads();
    if (me.busy) outer<TP, XP>(s + AT_X, s + AT_A, me, d.w1);
    __syncthreads();
}

struct Adam {
    float *first, *second;  // of this copy
    float penalty, rate;

    __device__ inline float step(float g, float& m, float& v) const {
        m = BETA1 * m + REST1 * g;
        v = BETA2 * v + REST2 * g * g;
        return rate * m / (sqrtf(v) + EPSILON);
    }

    // A bias, or a weight whose gradient has its penalty.
    __device__ inline void one(float* w, float g, int at) const {
        float m = first[at], v = second[at];
        w[at] -= step(g, m, v);
        first[at] = m, second[at] = v;
    }

    __device__ inline void four_of(float* w, const float (&g)[4], float4& m, float4& v) const {
        float4 now = four(w);
        now.x -= step(g[0] + penalty * now.x, m.x, v.x);
        now.y -= step(g[1] + penalty * now.y, m.y, v.y);
        now.z -= step(g[2] + penalty * now.z, m.z, v.z);
        now.w -= step(g[3] + penalty * now.w, m.w, v.w);
        *reinterpret_cast<float4*>(w) = now;
    }

    // Rows of a thread in a matrix, of which there are so many; moments come some rows at a time.
    template <int N>
    __device__ inline void matrix(float* w, const float (&g)[N][4], int at, int row,
                                  int rows) const {
        constexpr int SOME = N < 5 ? N : 5;
#pragma unroll
        for (int start = 0; start < N; start += SOME) {
            float4 m[SOME], v[SOME];
#pragma unroll
            for (int i = 0; i < SOME; i++)
                if (start + i < N && row + start + i < rows) {
                    m[i] = four(first + at + (start + i) * HP);
                    v[i] = four(second + at + (start + i) * HP);
                }
#pragma unroll
            for (int i = 0; i < SOME; i++)
                if (start + i < N && row + start + i < rows) {
                    const int there = at + (start + i) * HP;
                    four_of(w + there, g[start + i < N ? start + i : 0], m[i], v[i]);
                    *reinterpret_cast<float4*>(first + there) = m[i];
                    *reinterpret_cast<float4*>(second + there) = v[i];
                }
        }
    }
};

__device__ inline void update(float* s, Thread me, const Gradients& d, const Adam& adam) {
    if (me.busy) {
        const int p = me.row * TP, k = me.row * TK;
        adam.matrix<TP>(s, d.w1, W1 + p * HP + 4 * me.unit, p, M + D);
        adam.matrix<TK>(s, d.w2, W2 + k * HP + 4 * me.unit, k, H);
    }
    // Vectors are summed over groups of rows, in memory that is free by now.
    float* sums = s + AT_B;
    if (me.busy) {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            sums[(0 * GR + me.row) * HP + me.unit + GJ * q] = d.b1[q];
            sums[(1 * GR + me.row) * HP + 4 * me.unit + q] = d.b2[q];
            sums[(2 * GR + me.row) * HP + 4 * me.unit + q] = d.w3[q];
        }
    }
    s[AT_SUM + me.id] = d.b3;
    __syncthreads();
    if (me.id < H) {
        float b1 = 0.f, b2 = 0.f, w3 = 0.f;
        for (int g = 0; g < GR; g++) {
            b1 += sums[(0 * GR + g) * HP + me.id];
            b2 += sums[(1 * GR + g) * HP + me.id];
            w3 += sums[(2 * GR + g) * HP + me.id];
        }
        adam.one(s, b1, B1 + me.id);
        adam.one(s, b2, B2 + me.id);
        adam.one(s, w3 + adam.penalty * s[W3 + me.id], W3 + me.id);
    } else if (me.id == THREADS - 1) {
        float b3 = 0.f;
        for (int i = 0; i < THREADS; i++) b3 += s[AT_SUM + i];
        adam.one(s, b3, B3);
    }
    __syncthreads();
}

// Held-out rows that are classified correctly; known to thread 0.
__device__ inline int right(float* s, const Training& t, int copy, long long left_at,
                            long long right_at, Thread me) {
    int count = 0;
    const int* codes = t.held + static_cast<long long>(copy) * t.n_held;
    for (int start = 0; start < t.n_held; start += ROWS) {
        const int rows = min(ROWS, t.n_held - start);
        gather(s, t, codes + start, nullptr, rows, left_at, right_at, me.id);
        float h[TR][4];
        forward<XP>(s, s + B1, me, h);
        const int* code = reinterpret_cast<const int*>(s + AT_CODE);
        for (int r = me.id; r < rows; r += THREADS)
            count += (logit(s, r) > 0.f) == ((code[r] & 1) == 1);
        __syncthreads();
    }
    int* counts = reinterpret_cast<int*>(s + AT_SUM);
    counts[me.id] = count;
    __syncthreads();
    if (me.id == 0)
        for (int i = 1; i < THREADS; i++) count += counts[i];
    return count;
}

// Progress must exceed the tolerance to count, but any keeps the weights: 1; or ends training: 2.
__device__ inline int judge(const Training& t, int copy, int count) {
    const double score = static_cast<double>(count) / t.n_held;
    const double best = t.score[copy] < 0 ? -1e300 : static_cast<double>(t.score[copy]) / t.n_held;
    t.stale[copy] = score < best + t.tolerance ? t.stale[copy] + 1 : 0;
    t.ran[copy] += 1;
    if (score > best) t.score[copy] = count;
    if (t.stale[copy] > t.patience) t.done[copy] = 1;
    return (score > best ? 1 : 0) + (t.stale[copy] > t.patience ? 2 : 0);
}

__global__ void __launch_bounds__(THREADS, BLOCKS) train_kernel(Training t) {
    SHARED(s);
    const Thread me = thread();
    const int copy = t.active[blockIdx.x];
    const long long row = static_cast<long long>(copy) * SIZE;
    const long long left_at = t.left_at[copy], right_at = t.right_at[copy];
    const int* codes = t.known + static_cast<long long>(copy) * t.n_known;
    for (int i = me.id; i < SIZE; i += THREADS) s[i] = t.weights[row + i];
    __syncthreads();
    int step = 0;
    for (int epoch = 0; epoch < t.epochs; epoch++) {
        const int* order = t.orders + static_cast<long long>(epoch) * t.n_known;
        for (int start = 0; start < t.n_known; start += t.batch) {
            const int rows = min(t.batch, t.n_known - start);
            Gradients d;
            clear(d);
            for (int part = 0; part < rows; part += ROWS) {
                const int some = min(ROWS, rows - part);
                gather(s, t, codes, order + start + part, some, left_at, right_at, me.id);
                part_of_batch(s, me, some, 1.f / rows, d);
            }
            const Adam adam = {t.first + row, t.second + row, t.penalty / rows, t.rates[step++]};
            update(s, me, d, adam);
        }
        const int count = right(s, t, copy, left_at, right_at, me);
        int* flag = reinterpret_cast<int*>(s + AT_FLAG);
        if (me.id == 0) *flag = judge(t, copy, count);
        __syncthreads();
        const int said = *flag;
        if (said & 1)
            for (int i = me.id; i < SIZE; i += THREADS) t.best[row + i] = s[i];
        __syncthreads();
        if (said & 2) break;
    }
    for (int i = me.id; i < SIZE; i += THREADS) t.weights[row + i] = s[i];
}

__global__ void __launch_bounds__(THREADS, BLOCKS) ask_kernel(Asking t) {
    SHARED(s);
    const Thread me = thread();
    const int copy = blockIdx.x / t.places, place = blockIdx.x % t.places;
    const float* weights = t.weights + static_cast<long long>(copy) * SIZE;
    for (int i = me.id; i < SIZE; i += THREADS) s[i] = weights[i];
    __syncthreads();
    // An observation is the same in all rows: it makes a bias, in the place of gradients.
    float* bias = s + AT_B;
    if (me.id < HP) {
        float sum = s[B1 + me.id];
        for (int k = 0; k < D; k++) sum += t.x[place * D + k] * s[W1 + (M + k) * HP + me.id];
        bias[me.id] = sum;
    }
    __syncthreads();
    const float* draws = t.draws + t.at[blockIdx.x] * M;
    float sum = 0.f;
    for (int start = 0; start < t.count; start += ROWS) {
        const int rows = min(ROWS, t.count - start);
        for (int i = me.id; i < ROWS * MP; i += THREADS) {
            const int r = i / MP, column = i % MP;
            const long long at = static_cast<long long>(start + r) * M + column;
            s[AT_X + i] = r < rows && column < M ? draws[at] : 0.f;
        }
        __syncthreads();
        float h[TR][4];
        forward<MP>(s, bias, me, h);
        for (int r = me.id; r < rows; r += THREADS) {
            const float d = sigmoid(logit(s, r)) - 0.5f;
            sum += d * d;
        }
        __syncthreads();
    }
    s[AT_SUM + me.id] = sum;
    __syncthreads();
    if (me.id == 0) {
        double whole = 0.0;
        for (int i = 0; i < THREADS; i++) whole += s[AT_SUM + i];
        t.found[blockIdx.x] = static_cast<float>(whole / t.count);
    }
}

int last() {
#ifndef EMULATED
    return cudaGetLastError();
#else
    return 0;
#endif
}

}  // namespace

extern "C" {

// Numbers by which Python lays out weights: padded inputs, padded units, and all of a network.
void shape(int* into) { into[0] = XP, into[1] = HP, into[2] = SIZE; }

// The others return the number of an error, 0 if there is none.
int prepare() {
#ifndef EMULATED
    const auto most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    const auto share = cudaFuncAttributePreferredSharedMemoryCarveout;
    cudaError_t error = cudaFuncSetAttribute(train_kernel, most, FLOATS * 4);
    if (!error) error = cudaFuncSetAttribute(ask_kernel, most, FLOATS * 4);
    if (!error) error = cudaFuncSetAttribute(train_kernel, share, cudaSharedmemCarveoutMaxShared);
    if (!error) error = cudaFuncSetAttribute(ask_kernel, share, cudaSharedmemCarveoutMaxShared);
    return error;
#else
    return 0;
#endif
}

int train(const Training* t) {
    LAUNCH(train_kernel, t->blocks, THREADS, FLOATS * 4, t->stream, *t);
    return last();
}

int ask(const Asking* t) {
    LAUNCH(ask_kernel, t->copies * t->places, THREADS, FLOATS * 4, t->stream, *t);
    return last();
}
}
