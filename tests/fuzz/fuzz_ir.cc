// Any bytes as IR text: parsed, or refused with an Error; what was parsed prints, and its print parses to itself.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "aicf/error.h"
#include "ir/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const aicf::ir::Graph graph = aicf::ir::parse(text);
    const std::string printed = aicf::ir::print(graph);
    const aicf::ir::Graph again = aicf::ir::parse(printed);
    if (aicf::ir::print(again) != printed) std::abort();
    if (aicf::ir::canonical_text(again) != aicf::ir::canonical_text(graph)) std::abort();
  } catch (const aicf::Error&) {
  }
  return 0;
}
