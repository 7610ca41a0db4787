// What this build of AICF is and can do.
#pragma once

#include <string>
#include <vector>

namespace aicf {

std::string version();  // "0.1.0"

struct OpInfo {
  std::string name;
  std::string kind;  // pointwise, primitive, composite
  std::vector<std::string> operands;
  std::vector<std::string> attributes;  // "axis: integer", "eps: real (required)"
  std::vector<std::string> dtypes;      // CPU
  std::string gradient;                 // rule, expansion, zero, none
  std::vector<std::string> kernels;     // variants on the CPU
  int samples = 0;                      // test cases in the record
};

// Every op record, sorted by name.
std::vector<OpInfo> list_ops();

struct BackendInfo {
  std::string name;
  bool available = false;
  std::string description;  // the processor and its instruction set, or why the backend is not available
};

std::vector<BackendInfo> list_backends();

// "fmt 9.1.0", …: the libraries compiled in.
std::vector<std::string> list_libraries();

struct PassInfo {
  std::string name;
  std::string effect;  // required, exact, reorders
};

// The passes in order.
std::vector<PassInfo> list_passes();

}  // namespace aicf
