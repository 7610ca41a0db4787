// How a compiled plan is run.
#pragma once

#include <cstdint>

namespace aicf {

// graph: one launch of the captured step (on the CPU, as replay). replay: the bound list, launch after launch, without
// waiting. eager: launch by launch, each looked up anew. All give equal bits.
enum class Mode : uint8_t { graph, replay, eager };

}  // namespace aicf
