#include "base/log.h"

#include <gtest/gtest.h>

namespace evenkeel::log {
namespace {

std::string captured(const std::function<void()>& work) {
  ::testing::internal::CaptureStderr();
  work();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, LinesBelowTheLevelAreDropped) {
  const auto text = captured([] {
    set_level(Level::kWarning);
    info("[test] quiet ", 1);
    warning("[test] loud ", 2);
    set_level(Level::kInfo);
  });
  EXPECT_EQ(text.find("quiet"), std::string::npos);
  EXPECT_NE(text.find("warning [test] loud 2\n"), std::string::npos) << text;
}

TEST(Log, BracesAreOrdinaryText) {
  EXPECT_NE(captured([] { info("{} {0} %s"); }).find("{} {0} %s\n"), std::string::npos);
}

TEST(Progress, OffATerminalWritesTheFirstAndTheLastStateOnly) {
  const auto text = captured([] {
    Progress progress("round 1", 1000);
    for (int i = 1; i <= 5; ++i) progress.update(concat(i, "/5"));
  });
  EXPECT_NE(text.find("round 1 1/5\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("2/5"), std::string::npos) << text;
  EXPECT_NE(text.find("round 1 5/5\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace evenkeel::log
