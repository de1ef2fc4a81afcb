#include "data/json_lines.h"

#include <gtest/gtest.h>

#include "base/testing.h"

namespace evenkeel::data {
namespace {

/// Returns "first-last:text" for every value, joined by |.
std::string values_in(std::string_view text) {
  JsonLines lines(text);
  std::string all;
  while (const auto line = lines.next()) all += concat(line->first, "-", line->last, ":", line->text, "|");
  return all;
}

TEST(JsonLinesOf, ALineIsAValueAndBlankOnesCount) {
  EXPECT_EQ(values_in("1\n\n \t\r\n{\"a\": 2}\r\n3"), "1-1:1|4-4:{\"a\": 2}\r|5-5:3|");
  EXPECT_EQ(values_in(""), "");
  EXPECT_EQ(values_in("\n\n"), "");
  EXPECT_EQ(values_in("\xEF\xBB\xBF[1]\n2"), "1-1:[1]|2-2:2|");
}

TEST(JsonLinesOf, AValueOverLinesIsOne) {
  EXPECT_EQ(values_in("1\n{\n\"a\":\n[2]}\n3"), "1-1:1|2-4:{\n\"a\":\n[2]}|5-5:3|");
  EXPECT_EQ(values_in("[\n\n]"), "1-3:[\n\n]|");
  EXPECT_EQ(values_in("{\"a\": \"}{]\\\"\",\n\"b\": 1}\n{}"), "1-2:{\"a\": \"}{]\\\"\",\n\"b\": 1}|3-3:{}|");
}

TEST(JsonLinesOf, AValueThatDoesNotEndOrIsNoneIsItsLine) {
  EXPECT_EQ(values_in("{\"a\": 1\n2\n3"), "1-1:{\"a\": 1|2-2:2|3-3:3|");
  EXPECT_EQ(values_in("{a\n}\n[\n]"), "1-1:{a|2-2:}|3-3:[|4-4:]|") << "nothing is joined behind the first that is none";
  EXPECT_EQ(values_in("\"a\nb\"\n1"), "1-1:\"a|2-2:b\"|3-3:1|") << "a string holds no line break";
}

TEST(JsonLinesOf, ManyLinesThatDoNotEndTakeLinearTime) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "[\n";
  JsonLines lines(text);
  int64_t count = 0;
  while (lines.next()) ++count;
  EXPECT_EQ(count, 200000);
}

TEST(JsonLinesOf, WhatGoesOnIsRefusedWithItsLines) {
  const auto refused = [](std::string_view text) {
    return testing::refusal([&] {
      JsonLines lines(text);
      while (const auto line = lines.next()) check_line_ends(*line, "x");
    });
  };
  EXPECT_NE(refused("1\n{\n}").find("x: one JSON object per line; this one goes on over lines 2 to 3: "),
            std::string::npos);
  EXPECT_NE(refused("[1").find("x: not valid JSON: the line ends within a value"), std::string::npos);
  EXPECT_EQ(refused("{}\n[]\n}"), "no error");
}

}  // namespace
}  // namespace evenkeel::data
