// Philox 4x32-10 as device text, for any kernel that draws.
#pragma once

namespace aicf::backend::cuda {

// philox(block, ordinal, seed, offset, words): the words of that block of a base::PhiloxStream, which says what the
// counter holds. It uses no intrinsics.
inline constexpr const char* kPhiloxText = R"cuda(
DEVICE void philox4x32(u32 (&c)[4], u32 key0, u32 key1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 a = (u64)0xd2511f53u * c[0], b = (u64)0xcd9e8d57u * c[2];
    c[0] = (u32)(b >> 32) ^ c[1] ^ key0;
    c[1] = (u32)b;
    c[2] = (u32)(a >> 32) ^ c[3] ^ key1;
    c[3] = (u32)a;
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
}
DEVICE void philox(u64 block, u32 ordinal, u64 seed, u64 offset, u32 (&words)[4]) {
  words[0] = (u32)block;
  words[1] = (u32)(block >> 32) | ordinal << 11 | 0x80000000u;
  words[2] = (u32)offset;
  words[3] = (u32)(offset >> 32);
  philox4x32(words, (u32)seed, (u32)(seed >> 32));
}
)cuda";

}  // namespace aicf::backend::cuda
