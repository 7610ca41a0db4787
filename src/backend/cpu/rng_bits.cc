// rng_bits on the CPU, for every Highway target. Shares are whole blocks of four elements.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/rng_bits.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "backend/cpu/kernels.h"
#include "backend/cpu/partition.h"
#include "backend/cpu/philox-inl.h"
#include "backend/cpu/rng_bits.h"

HWY_BEFORE_NAMESPACE();
namespace aicf::backend::cpu {
namespace HWY_NAMESPACE {

HWY_ATTR void fill(const base::PhiloxStream& stream, int64_t first, int64_t n, int32_t* to) {
  random_bits(stream, first, n, to);
}
RandomBitsFn random_bits_fn() { return fill; }

}  // namespace HWY_NAMESPACE
}  // namespace aicf::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aicf::backend::cpu {
namespace {

struct Params {
  RandomBitsFn fill = nullptr;
  int64_t elements = 0;
  uint32_t ordinal = 0;
};

uint64_t word_at(const void* p) {
  uint64_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

void run(const KernelArgs& args, int part, int parts) {
  const Params& p = *static_cast<const Params*>(args.params);
  const base::PhiloxStream stream{word_at(args.buffers[0]), word_at(args.buffers[1]), p.ordinal};
  const Range blocks = share((p.elements + 3) / 4, part, parts);
  const int64_t begin = 4 * blocks.begin, end = std::min(4 * blocks.end, p.elements);
  p.fill(stream, begin, end - begin, static_cast<int32_t*>(args.buffers[2]) + begin);
}

PreparedKernel prepare(const KernelQuery& query) {
  PreparedKernel kernel;
  const TensorType& out = query.out[0];
  if (out.bytes() == 0) return kernel;
  kernel.phases = {{run, parts_for_bytes(static_cast<double>(out.bytes()))}};
  const auto ordinal = static_cast<uint32_t>(query.attrs.get_int("ordinal"));
  kernel.params = std::make_shared<Params>(Params{find_random_bits(), out.shape.elements(), ordinal});
  return kernel;
}

}  // namespace

HWY_EXPORT(random_bits_fn);
RandomBitsFn find_random_bits() { return HWY_DYNAMIC_DISPATCH(random_bits_fn)(); }

void register_rng_bits(KernelTable& table) {
  table.push_back(
      {.op = "rng_bits", .variant = "philox", .accepts = [](const KernelQuery&) { return true; }, .prepare = prepare});
}

}  // namespace aicf::backend::cpu
#endif
