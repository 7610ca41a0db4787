// The device text of the own matmul: what moves tiles and multiplies them. mma.cc puts constants before it.
#pragma once

namespace aicf::backend::cuda {

// Instructions that C++ has no name for. Nothing else in the text is the GPU's own but __syncthreads() and the index
// variables.
inline constexpr const char* kMmaInstructions = R"cuda(
// kBytes from global to shared memory in the background, zeros if it is not `inside`.
template <int kBytes> DEVICE void copy_async(void* to, const void* from, bool inside) {
  const u32 at = (u32)__cvta_generic_to_shared(to);
  const int size = inside ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(kBytes), "r"(size) : "memory");
  }
}
DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the last kPending groups of copies are done.
template <int kPending> DEVICE void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
// Four 8 × 8 matrices of 16-bit elements; lane 8i + r has the address of row r of matrix i.
DEVICE void load_matrices(u32 (&x)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"((u32)__cvta_generic_to_shared(row)) : "memory");
}
DEVICE void load_matrices_transposed(u32 (&x)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"((u32)__cvta_generic_to_shared(row)) : "memory");
}
// To the nearest, ties away from zero.
DEVICE u32 to_tf32(u32 x) {
  u32 y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(x)));
  return y;
}
DEVICE void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, float) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, bf16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, f16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
)cuda";

// The tiles in shared memory are as the operands are in memory, transposed or not; the pad after each row spreads what
// is read together over all banks.
inline constexpr const char* kMmaHelpers = R"cuda(
constexpr int kWarps = WM * WN * WK, kThreads = 32 * kWarps;
constexpr int MI = BM / WM / 16, NI = BN / WN / 8;  // 16 × 8 pieces of a warp's part of the tile
constexpr bool kWide = sizeof(In) == 4;
constexpr int kStep = kWide ? 8 : 16;            // of the inner axis, by one instruction
constexpr int kSteps = BK / kStep / WK;          // of a warp, in a tile
constexpr int A_ROWS = TA ? BK : BM, A_COLS = TA ? BM : BK, B_ROWS = TB ? BN : BK, B_COLS = TB ? BK : BN;
constexpr int padded(int cols, bool inner) { return kWide && inner ? cols + 4 : cols % 16 == 0 ? cols + 8 : cols; }
constexpr int A_PITCH = padded(A_COLS, !TA), B_PITCH = padded(B_COLS, TB);
constexpr int A_TILE = A_ROWS * A_PITCH, B_TILE = B_ROWS * B_PITCH;
constexpr int KT = (K + BK - 1) / BK;
constexpr int Q = WK == 1 ? MI * NI * 2 : (BM * BN / 2 + kThreads - 1) / kThreads;  // pairs of sums of a thread
constexpr int PITCH = BN + 8;  // of sums in shared memory
static_assert(STAGES * (A_TILE + B_TILE) * sizeof(In) <= POOL && (WK == 1 || WK * BM * PITCH * 4 <= POOL));

// The part from (row0, col0) on of a matrix; what is outside it is 0. V elements at a time: rows hold whole ones.
template <int kRows, int kCols, int kPitch, int V> DEVICE void fetch(In* to, const In* from, int row0, int col0, int rows, int cols) {
  constexpr int kPerRow = kCols / V, kAll = kRows * kPerRow;
#pragma unroll
  for (int i = 0; i < (kAll + kThreads - 1) / kThreads; ++i) {
    const int at = i * kThreads + (int)threadIdx.x;
    if (kAll % kThreads != 0 && at >= kAll) break;
    const int r = at / kPerRow, c = at % kPerRow * V;
    const bool inside = row0 + r < rows && col0 + c < cols;
    const In* const x = from + (inside ? (Index)(row0 + r) * cols + (col0 + c) : 0);
    In* const y = to + (r * kPitch + c);
    if constexpr (V * sizeof(In) < 4) {
      In v = {};
      if (inside) v = *x;
      *y = v;
    } else {
      copy_async<V * sizeof(In)>(y, x, inside);
    }
  }
}
DEVICE void fetch_tiles(In* a_tile, In* b_tile, const In* a, const In* b, int row0, int col0, int k0) {
  if (TA) fetch<A_ROWS, A_COLS, A_PITCH, A_VECTOR>(a_tile, a, k0, row0, K, M);
  else fetch<A_ROWS, A_COLS, A_PITCH, A_VECTOR>(a_tile, a, row0, k0, M, K);
  if (TB) fetch<B_ROWS, B_COLS, B_PITCH, B_VECTOR>(b_tile, b, col0, k0, N, K);
  else fetch<B_ROWS, B_COLS, B_PITCH, B_VECTOR>(b_tile, b, k0, col0, K, N);
}

// Lane 4g + t of a warp has columns 2t, 2t + 1 of rows g and g + 8 of each piece of the sums.
)cuda";

// f32: products are exact to the last bit of one fused multiply-add, in the order of the inner axis.
inline constexpr const char* kStepF32 = R"cuda(
template <bool kInner, int kPitch> DEVICE void four(float (&x)[4], const float* tile, int at, int k) {
  if (kInner) {
    const Pack<float, 4> p = load_pack<4>(tile + (at * kPitch + k));
    for (int j = 0; j < 4; ++j) x[j] = p.at[j];
  } else {
    for (int j = 0; j < 4; ++j) x[j] = tile[(k + j) * kPitch + at];
  }
}
DEVICE void step(float (&c)[MI][NI][4], const float* a, const float* b, int row, int col, int k, int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int part = 0; part < kStep; part += 4) {
    float x[MI][2][4], y[NI][2][4];
#pragma unroll
    for (int i = 0; i < 2 * MI; ++i) four<!TA, A_PITCH>(x[i / 2][i % 2], a, row + i * 8 + g, k + part);
#pragma unroll
    for (int i = 0; i < 2 * NI; ++i) four<TB, B_PITCH>(y[i / 2][i % 2], b, col + i / 2 * 8 + 2 * t + i % 2, k + part);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < MI * NI * 4; ++i) {
        float& sum = c[i / 4 / NI][i / 4 % NI][i % 4];
        sum = __fmaf_rn(x[i / 4 / NI][i / 2 % 2][j], y[i / 4 % NI][i % 2][j], sum);
      }
    }
  }
}
)cuda";

// A 16-byte row of a matrix that ldmatrix loads is 4 elements of f32 or 8 of 16 bits: the fragments are the same.
inline constexpr const char* kStepTensor = R"cuda(
constexpr int H = kStep / 2;
DEVICE void load_a(u32 (&x)[4], const In* tile, int row, int k, int lane) {
  if constexpr (!TA) {
    load_matrices(x, tile + ((row + lane % 16) * A_PITCH + k + lane / 16 * H));
  } else if constexpr (!kWide) {
    load_matrices_transposed(x, tile + ((k + lane % 8 + lane / 16 * 8) * A_PITCH + row + lane / 8 % 2 * 8));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = __float_as_uint(load(tile[(k + lane % 4 + i / 2 * 4) * A_PITCH + row + lane / 4 + i % 2 * 8]));
    }
  }
}
// Of two neighbouring pieces; the second is the first again where there is no other.
DEVICE void load_b(u32 (&x)[4], const In* tile, int col, int k, int lane) {
  constexpr int kNext = NI > 1 ? 8 : 0;
  if constexpr (TB) {
    load_matrices(x, tile + ((col + lane % 8 + lane / 16 * kNext) * B_PITCH + k + lane / 8 % 2 * H));
  } else if constexpr (!kWide) {
    load_matrices_transposed(x, tile + ((k + lane % 16) * B_PITCH + col + lane / 16 * kNext));
  } else {
#pragma unroll
    for (int i = 0; i < (NI > 1 ? 4 : 2); ++i) {
      x[i] = __float_as_uint(load(tile[(k + lane % 4 + i % 2 * 4) * B_PITCH + col + lane / 4 + i / 2 * 8]));
    }
  }
}
DEVICE void step(float (&c)[MI][NI][4], const In* a, const In* b, int row, int col, int k, int lane) {
  u32 x[MI][4], y[(NI + 1) / 2][4];
#pragma unroll
  for (int i = 0; i < MI; ++i) load_a(x[i], a, row + i * 16, k, lane);
#pragma unroll
  for (int i = 0; i < (NI + 1) / 2; ++i) load_b(y[i], b, col + i * 16, k, lane);
  if constexpr (kWide) {
#pragma unroll
    for (int i = 0; i < MI * 4; ++i) x[i / 4][i % 4] = to_tf32(x[i / 4][i % 4]);
#pragma unroll
    for (int i = 0; i < NI * 2; ++i) y[i / 4][i % 4] = to_tf32(y[i / 4][i % 4]);
  }
#pragma unroll
  for (int i = 0; i < MI; ++i) {
#pragma unroll
    for (int j = 0; j < NI; ++j) multiply(c[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1], In());
  }
}
)cuda";

// The kernel: `batch` has been cut off the number of the block, and a, b moved to that matrix.
inline constexpr const char* kMmaPrologue = R"cuda(
const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
const int wm = warp % WM, wn = warp / WM % WN, wk = warp / (WM * WN);
const int row0 = tile / TILES_N * BM, col0 = tile % TILES_N * BN;
In* const a_tiles = reinterpret_cast<In*>(pool);
In* const b_tiles = a_tiles + STAGES * A_TILE;
#pragma unroll
for (int s = 0; s < STAGES - 1; ++s) {
  if (s < KT) fetch_tiles(a_tiles + s * A_TILE, b_tiles + s * B_TILE, a, b, row0, col0, s * BK);
  commit_copies();
}
)cuda";

// Then pair q of the thread's sums is v[q], at (ROW, COL) of the tile.
inline constexpr const char* kMmaLoop = R"cuda(
float sums[MI][NI][4] = {};
int stage = 0, last = STAGES - 1;
#pragma unroll 1
for (int kt = 0; kt < KT; ++kt) {
  wait_for_copies<STAGES - 2>();
  __syncthreads();
  if (kt + STAGES - 1 < KT) {
    fetch_tiles(a_tiles + last * A_TILE, b_tiles + last * B_TILE, a, b, row0, col0, (kt + STAGES - 1) * BK);
  }
  commit_copies();
  const In* const a_tile = a_tiles + stage * A_TILE;
  const In* const b_tile = b_tiles + stage * B_TILE;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) step(sums, a_tile, b_tile, wm * (BM / WM), wn * (BN / WN), (s * WK + wk) * kStep, lane);
  stage = stage + 1 == STAGES ? 0 : stage + 1;
  last = last + 1 == STAGES ? 0 : last + 1;
}
float v[Q][2];
if constexpr (WK == 1) {
#pragma unroll
  for (int i = 0; i < Q * 2; ++i) v[i / 2][i % 2] = sums[i / 4 / NI][i / 2 % NI][i / 2 / NI % 2 * 2 + i % 2];
} else {
  // The sums of the warps that share a piece are added in their order.
  float* const parts = reinterpret_cast<float*>(pool);
  wait_for_copies<0>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < MI * NI * 2; ++i) {
    const int row = wm * (BM / WM) + i / 2 / NI * 16 + i % 2 * 8 + lane / 4, col = wn * (BN / WN) + i / 2 % NI * 8 + lane % 4 * 2;
    const float* const s = sums[i / 2 / NI][i / 2 % NI] + i % 2 * 2;
    store_pack(parts + ((wk * BM + row) * PITCH + col), Pack<float, 2>{s[0], s[1]});
  }
  __syncthreads();
#pragma unroll
  for (int q = 0; q < Q; ++q) {
    const int at = q * kThreads + (int)threadIdx.x;
    if (BM * BN / 2 % kThreads != 0 && at >= BM * BN / 2) continue;
    const float* const first = parts + (at / (BN / 2) * PITCH + at % (BN / 2) * 2);
    Pack<float, 2> p = load_pack<2>(first);
#pragma unroll
    for (int w = 1; w < WK; ++w) {
      const Pack<float, 2> next = load_pack<2>(first + w * BM * PITCH);
      p.at[0] += next.at[0];
      p.at[1] += next.at[1];
    }
    v[q][0] = p.at[0];
    v[q][1] = p.at[1];
  }
}
)cuda";

// The place of pair q in the tile; in a result of M × N it may be outside.
inline constexpr const char* kMmaPair = R"cuda(
const int at = q * kThreads + (int)threadIdx.x;
const int row = row0 + (WK > 1 ? at / (BN / 2) : wm * (BM / WM) + q / NI / 2 * 16 + q / NI % 2 * 8 + lane / 4);
const int column = col0 + (WK > 1 ? at % (BN / 2) * 2 : wn * (BN / WN) + q % NI * 8 + lane % 4 * 2);
const bool exists = WK == 1 || BM * BN / 2 % kThreads == 0 || at < BM * BN / 2;
const int count = exists && row < M && column < N ? (N - column < 2 ? 1 : 2) : 0;
)cuda";

}  // namespace aicf::backend::cuda
