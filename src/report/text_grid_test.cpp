// Tables of text that fit into a page.
#include "report/text_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/plain/error.h"

namespace evenkeel::report {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

size_t widest(const std::string& text) {
  size_t width = 0;
  for (const auto& line : lines_of(text)) width = std::max(width, columns_of_text(line));
  return width;
}

TEST(TextGrid, ColumnsThatDoNotFitGoOnBelowWithTheirKeys) {
  std::vector<std::string> titles{"run", "round"}, row{"a", "7"};
  for (int i = 0; i < 12; ++i) {
    titles.push_back(concat("column-", i));
    row.push_back(concat("value-", i));
  }
  TextGrid grid(titles, 2);
  grid.add(row);
  const auto text = grid.text();
  EXPECT_LE(widest(text), kPageWidth) << text;
  const auto lines = lines_of(text);
  ASSERT_EQ(lines.size(), 5u) << text;
  EXPECT_EQ(lines[2], "");
  for (const size_t head : {0, 3}) EXPECT_TRUE(lines[head].starts_with("run  round  ")) << text;
  for (const size_t line : {1, 4}) EXPECT_TRUE(lines[line].starts_with("a        7  ")) << text;
  for (int i = 0; i < 12; ++i) EXPECT_NE(text.find(concat("value-", i)), text.npos) << i;
}

TEST(TextGrid, AGroupStaysInOneBlock) {
  TextGrid grid({"task", "0.125", "0.25", "0.125", "0.25", "rows"});
  grid.group(1, 3, "a-run-with-a-name-of-forty-five-characters-in");
  grid.group(3, 5, "another-run-with-a-rather-long-name-as-well");
  grid.add({"boolq", "10.0", "20.0", "30.0", "40.0", "5"});
  const auto text = grid.text();
  EXPECT_LE(widest(text), kPageWidth) << text;
  EXPECT_EQ(text,
            "       a-run-with-a-name-of-forty-five-characters-in\n"
            "task                                     0.125  0.25\n"
            "boolq                                     10.0  20.0\n"
            "\n"
            "       another-run-with-a-rather-long-name-as-well\n"
            "task                                   0.125  0.25  rows\n"
            "boolq                                   30.0  40.0     5\n");
}

TEST(TextGrid, LongNamesGoOnInTheNextLine) {
  const std::string name(97, 'n');
  TextGrid grid({"run", "round", "loss"}, 2);
  grid.add({name, "1", "0.5"});
  const auto lines = lines_of(grid.text());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1], std::string(40, 'n') + "      1   0.5");
  EXPECT_EQ(lines[2] + lines[3], std::string(57, 'n'));
}

TEST(TextGrid, AGroupWiderThanThePageIsCutIntoLines) {
  const std::string title(150, 't');
  TextGrid grid({"task", "1"});
  grid.group(1, 2, title);
  grid.add({"boolq", "10.0"});
  const auto text = grid.text();
  EXPECT_LE(widest(text), kPageWidth) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), 't'), 151);
}

TEST(TextGrid, CountsCharactersNotBytes) {
  TextGrid grid({"run", "loss"});
  grid.add({"\xC3\xA4\xC3\xB6\xC3\xBC", "1"});
  EXPECT_EQ(grid.text(), "run  loss\n\xC3\xA4\xC3\xB6\xC3\xBC     1\n");
}

TEST(Wrapped, BreaksAtSpacesAndIndentsLaterLines) {
  EXPECT_EQ(wrapped("one two three four", 9), "one two\n  three\n  four\n");
  EXPECT_EQ(wrapped("a-word-that-is-longer than", 9), "a-word-that-is-longer\n  than\n");
  EXPECT_EQ(wrapped(""), "\n");
}

}  // namespace
}  // namespace evenkeel::report
