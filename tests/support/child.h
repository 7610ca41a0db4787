// A new process: the test binary again, running one test of its own that does nothing otherwise.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace aicf::test {

// What the child was asked to do; "" when this process is no child.
inline std::string child_task() {
  const char* task = std::getenv("AICF_TEST_CHILD");
  return task != nullptr ? task : "";
}

// Runs `test` ("Suite.Name") in a new process with this task, and expects it to pass.
inline void run_child(const std::string& test, const std::string& task) {
  bool known = false;
  for (int i = 0; i < testing::UnitTest::GetInstance()->total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *testing::UnitTest::GetInstance()->GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      known |= std::string(suite.name()) + "." + suite.GetTestInfo(j)->name() == test;
    }
  }
  ASSERT_TRUE(known) << "no test " << test << ": the child would run none, and pass";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string filter = "--gtest_filter=" + test;
  setenv("AICF_TEST_CHILD", task.c_str(), 1);
  const pid_t child = fork();
  if (child == 0) {
    execl(self.c_str(), self.c_str(), filter.c_str(), "--gtest_brief=1", static_cast<char*>(nullptr));
    _exit(127);
  }
  unsetenv("AICF_TEST_CHILD");
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << test << " in a new process";
}

}  // namespace aicf::test
