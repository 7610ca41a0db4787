// pad on the CPU: row by row, copies of the value around a row of the operand, or instead of one.
#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/partition.h"

namespace aicf::backend::cpu {
namespace {

struct Plan {
  // The axes, trailing ones without padding merged into the last that has some; at least one. In elements.
  std::vector<int64_t> in, low, out;
  int64_t total = 0;
  uint64_t value = 0;  // the bits of one element, in its first bytes
};

// Elements [begin, end) of one row of the result: values, then the operand's row `from` (null: none), then values.
template <class T>
void pad_row(T* to, const T* from, int64_t low, int64_t n, int64_t begin, int64_t end, T value) {
  const int64_t first = from == nullptr ? end : std::clamp(low, begin, end);
  const int64_t last = from == nullptr ? end : std::clamp(low + n, begin, end);
  std::fill(to + begin, to + first, value);
  if (last > first) std::memcpy(to + first, from + (first - low), static_cast<size_t>(last - first) * sizeof(T));
  std::fill(to + last, to + end, value);
}

// The row of the operand at this row of the result, or -1 in the padding.
int64_t source_row(const Plan& plan, int64_t row) {
  int64_t index = 0, stride = 1;
  for (int i = static_cast<int>(plan.out.size()) - 2; i >= 0; --i) {
    const int64_t at = row % plan.out[i] - plan.low[i];
    if (at < 0 || at >= plan.in[i]) return -1;
    index += at * stride;
    stride *= plan.in[i];
    row /= plan.out[i];
  }
  return index;
}

template <class T>
void run(const KernelArgs& args, int part, int parts) {
  const Plan& plan = *static_cast<const Plan*>(args.params);
  const T* from = static_cast<const T*>(args.buffers[0]);
  T* to = static_cast<T*>(args.buffers[1]);
  T value;
  std::memcpy(&value, &plan.value, sizeof(T));
  const int64_t columns = plan.out.back(), in_columns = plan.in.back(), low = plan.low.back();
  Range range = share(plan.total, part, parts);
  while (range.begin < range.end) {
    const int64_t row = range.begin / columns, begin = range.begin % columns;
    const int64_t end = std::min(columns, begin + range.end - range.begin);
    const int64_t source = source_row(plan, row);
    pad_row(to + row * columns, source < 0 ? nullptr : from + source * in_columns, low, in_columns, begin, end, value);
    range.begin += end - begin;
  }
}

Plan plan_of(const KernelQuery& query) {
  const Shape &in = query.in[0].shape, &out = query.out[0].shape;
  const std::vector<int64_t> low = query.attrs.get_ints("low");
  Plan plan;
  plan.total = out.elements();
  for (int i = 0; i < in.rank(); ++i) {
    if (i > 0 && in[i] == out[i]) {
      plan.in.back() *= in[i];
      plan.low.back() *= in[i];
      plan.out.back() *= in[i];
    } else {
      plan.in.push_back(in[i]);
      plan.low.push_back(low[i]);
      plan.out.push_back(out[i]);
    }
  }
  if (in.rank() == 0) plan.in = plan.out = {1}, plan.low = {0};
  set_element(query.out[0].dtype, &plan.value, 0, query.attrs.get_float("value"));
  return plan;
}

CpuKernelFn run_fn(size_t element) {
  switch (element) {
    case 1:
      return run<uint8_t>;
    case 2:
      return run<uint16_t>;
    case 4:
      return run<uint32_t>;
    default:
      return run<uint64_t>;
  }
}

PreparedKernel prepare(const KernelQuery& query) {
  PreparedKernel kernel;
  if (query.out[0].bytes() == 0) return kernel;
  kernel.phases = {{run_fn(size_of(query.out[0].dtype)), parts_for_bytes(static_cast<double>(query.in[0].bytes()) +
                                                                         static_cast<double>(query.out[0].bytes()))}};
  kernel.params = std::make_shared<Plan>(plan_of(query));
  return kernel;
}

}  // namespace

void register_pad(KernelTable& table) {
  table.push_back(
      {.op = "pad", .variant = "rows", .accepts = [](const KernelQuery&) { return true; }, .prepare = prepare});
}

}  // namespace aicf::backend::cpu
