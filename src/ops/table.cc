// The table of all op records, from ops.def.
#include <algorithm>
#include <array>
#include <string_view>

#include "ops/defs.h"

namespace aicf::ir {
namespace {

#define AICF_POINTWISE(name, arity, domain) &ops::name##_def,
#define AICF_OP(name) &ops::name##_def,
#define AICF_COMPOSITE(name) &ops::name##_def,
const OpDef* const kRecords[] = {
#include "ops/ops.def"
};

std::array<const OpDef*, std::size(kRecords)> sorted() {
  std::array<const OpDef*, std::size(kRecords)> table;
  std::copy(std::begin(kRecords), std::end(kRecords), table.begin());
  std::sort(table.begin(), table.end(),
            [](const OpDef* a, const OpDef* b) { return std::string_view(a->name) < std::string_view(b->name); });
  return table;
}

}  // namespace

std::span<const OpDef* const> op_table() {
  static const auto table = sorted();
  return table;
}

const OpDef* find_op(std::string_view name) {
  const auto table = op_table();
  auto it = std::lower_bound(table.begin(), table.end(), name,
                             [](const OpDef* def, std::string_view n) { return std::string_view(def->name) < n; });
  return it != table.end() && (*it)->name == name ? *it : nullptr;
}

}  // namespace aicf::ir
