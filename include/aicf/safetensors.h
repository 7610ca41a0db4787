// Safetensors files (github.com/huggingface/safetensors): named tensors and a map of strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aicf/tensor.h"

namespace aicf {

// A longer header is refused, as the format's reference implementation does.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

struct Safetensors {
  NamedTensors tensors;  // in the header's order
  std::map<std::string, std::string> metadata;
};

// Trusts nothing but the file's size; memory is allocated for what the file can hold. Throws Error, naming file,
// tensor, what was expected and what was found, on: a header length outside the file or above the cap; malformed JSON;
// unknown or repeated keys; a dtype other than F64 F32 BF16 F16 I64 I32 U8 BOOL; extents or offsets that are not
// non-negative integers; a rank above 8; a range that is not the size of its tensor; ranges that overlap or leave bytes
// unused (empty ones may lie anywhere in the data); a BOOL that is neither 0 nor 1; a file that shrinks while it is
// read.
Safetensors read_safetensors(const std::string& path);
// The same for bytes in memory; `name` stands for the file in messages.
Safetensors parse_safetensors(std::span<const std::byte> bytes, const std::string& name = "bytes");

// The tensors under other names, for a file that another program wrote. Each name is replaced by the first entry (from,
// to) whose `from` it is; one * in `from` stands for any text, which takes the place of the * in `to`; with an empty
// `to` the tensor is left out. Names that no entry has stay. Linear weights are [out, in], as PyTorch's: nothing is
// transposed. Throws Error on an entry that no name has, a `to` with a * its `from` lacks, more than one *, and two
// tensors of one new name.
using NameMap = std::vector<std::pair<std::string, std::string>>;
NamedTensors rename_tensors(NamedTensors tensors, const NameMap& names);

// Writes the tensors in the order given. Atomic and durable: a temporary file in the same folder is written, synced and
// renamed. Throws Error on a repeated name, a name or string that is not UTF-8, or when writing fails; the old file is
// then untouched and no temporary is left.
void write_safetensors(const std::string& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace aicf
