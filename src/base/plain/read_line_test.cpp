#include "base/plain/read_line.h"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "base/testing.h"

namespace evenkeel {
namespace {

std::vector<std::string> lines_of(const std::string& text, size_t most) {
  std::istringstream input(text);
  std::vector<std::string> lines;
  for (std::string line; read_line(input, line, most);) lines.push_back(line);
  return lines;
}

/// A stream that never ends and has no line break. Counts the bytes that were read.
class Endless : public std::streambuf {
 public:
  int64_t count = 0;

 protected:
  int_type underflow() override {
    ++count;
    setg(&byte_, &byte_, &byte_ + 1);
    return 'x';
  }

 private:
  char byte_ = 'x';
};

TEST(ReadLine, ReturnsTheLinesThatGetlineReturns) {
  for (const std::string text : {"", "\n", "a", "a\n", "a\n\nb", "\n\n", "a\r\nb\r\n", "\xff\xfe\n\xff"}) {
    std::istringstream input(text);
    std::vector<std::string> expected;
    for (std::string line; std::getline(input, line);) expected.push_back(line);
    EXPECT_EQ(lines_of(text, 3), expected) << text;
  }
  EXPECT_EQ(lines_of(std::string("a\0b\n", 4), 3), std::vector{std::string("a\0b", 3)});
}

class CountedFlushes : public std::streambuf {
 public:
  int count = 0;

 protected:
  int sync() override {
    ++count;
    return 0;
  }
};

TEST(ReadLine, FlushesTheTiedStreamBeforeEachLine) {
  CountedFlushes answers;
  std::ostream output(&answers);
  std::istringstream input("one\ntwo");
  input.tie(&output);
  std::string line;
  for (int read = 1; read_line(input, line, 3); ++read) EXPECT_EQ(answers.count, read);
  EXPECT_EQ(line, "");
  EXPECT_TRUE(input.eof());
}

TEST(ReadLine, ALineThatIsTooLongIsAnError) {
  EXPECT_EQ(lines_of("1234\n12\n1234", 4).size(), 3u);
  for (const auto* text : {"12345\n", "12345", "1\n12345"})
    EXPECT_EQ(testing::refusal([&] { lines_of(text, 4); }),
              "[data] the line is longer than 4 bytes, the most that is read of one");
  Endless endless;
  std::istream input(&endless);
  std::string line;
  EXPECT_NE(testing::refusal([&] { read_line(input, line, 1000); }).find("1000 bytes"), std::string::npos);
  EXPECT_EQ(endless.count, 1001);
}

}  // namespace
}  // namespace evenkeel
