#include "base/plain/log.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/plain/files.h"
#include "base/testing.h"

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

TEST(Progress, WithoutATerminalOnlyFirstAndLastStateAreWritten) {
  const auto text = captured([] {
    Progress progress("round 1", 1000);
    for (int i = 1; i <= 5; ++i) progress.update(concat(i, "/5"));
  });
  EXPECT_NE(text.find("round 1 1/5\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("2/5"), std::string::npos) << text;
  EXPECT_NE(text.find("round 1 5/5\n"), std::string::npos) << text;
}

std::string after_the_time(const std::string& text) {
  std::string all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) all += line.substr(line.find("Z ") + 2) + "\n";
  return all;
}

TEST(LogFile, ContainsEarlierLinesOfAllLevels) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "log.txt";
  captured([&] {
    info("[test] before there was a file");
    File kept;
    warning("[test] early");
    set_level(Level::kError);
    info("[test] quiet");
    kept.open(file);
    set_level(Level::kInfo);
    kept.note(Level::kError, "[test] for the file\nalone");
    Progress progress("round 1", 1000);
    for (int i = 1; i <= 3; ++i) progress.update(concat(i, "/3"));
  });
  info("[test] afterwards");
  EXPECT_EQ(after_the_time(read_file(file)),
            "warning [test] early\ninfo    [test] quiet\nerror   [test] for the file\\nalone\n"
            "info    round 1 1/3\ninfo    round 1 3/3\n");
}

TEST(LogFile, ReopeningAppends) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "log.txt";
  for (const auto* text : {"first", "second"})
    captured([&] {
      File kept;
      kept.open(file);
      info(text);
    });
  EXPECT_EQ(after_the_time(read_file(file)), "info    first\ninfo    second\n");
}

TEST(LogFile, LinesAfterAFailureToOpenAreNotCollected) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "log.txt";
  captured([&] {
    File kept;
    info("before");
    kept.open(folder.path() / "missing" / "log.txt");
    info("lost");
    kept.open(file);
    info("kept");
  });
  EXPECT_EQ(after_the_time(read_file(file)), "info    kept\n");
}

TEST(LogFile, WriteFailuresAreIgnored) {
  File kept;
  kept.open("/nowhere/log.txt");
  EXPECT_NE(captured([] { info("still said"); }).find("still said"), std::string::npos);
}

}  // namespace
}  // namespace evenkeel::log
