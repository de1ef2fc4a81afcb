// Tables of text that fit into a page.
#include "report/table.h"

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

TEST(TextTable, ColumnsThatDoNotFitGoOnBelowWithTheirKeys) {
  std::vector<std::string> titles{"run", "round"}, row{"a", "7"};
  for (int i = 0; i < 12; ++i) {
    titles.push_back(concat("column-", i));
    row.push_back(concat("value-", i));
  }
  Table grid{.head = titles, .keys = 2};
  grid.add(row);
  const auto text = text_of(grid);
  EXPECT_LE(widest(text), kPageWidth) << text;
  const auto lines = lines_of(text);
  ASSERT_EQ(lines.size(), 5u) << text;
  EXPECT_EQ(lines[2], "");
  for (const size_t head : {0, 3}) EXPECT_TRUE(lines[head].starts_with("run  round  ")) << text;
  for (const size_t line : {1, 4}) EXPECT_TRUE(lines[line].starts_with("a        7  ")) << text;
  for (int i = 0; i < 12; ++i) EXPECT_NE(text.find(concat("value-", i)), text.npos) << i;
}

TEST(TextTable, AGroupStaysInOneBlock) {
  Table grid{.head = {"task", "0.125", "0.25", "0.125", "0.25", "rows"}};
  grid.groups.push_back({1, 3, "a-run-with-a-name-of-forty-five-characters-in"});
  grid.groups.push_back({3, 5, "another-run-with-a-rather-long-name-as-well"});
  grid.add({"boolq", "10.0", "20.0", "30.0", "40.0", "5"});
  const auto text = text_of(grid);
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

TEST(TextTable, LongNamesGoOnInTheNextLine) {
  const std::string name(97, 'n');
  Table grid{.head = {"run", "round", "loss"}, .keys = 2};
  grid.add({name, "1", "0.5"});
  const auto lines = lines_of(text_of(grid));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1], std::string(67, 'n') + "      1   0.5") << "as wide as the others leave";
  EXPECT_EQ(lines[2], std::string(30, 'n'));
}

TEST(TextTable, AGroupWiderThanThePageIsCutIntoLines) {
  const std::string title(150, 't');
  Table grid{.head = {"task", "1"}};
  grid.groups.push_back({1, 2, title});
  grid.add({"boolq", "10.0"});
  const auto text = text_of(grid);
  EXPECT_LE(widest(text), kPageWidth) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), 't'), 151);
}

TEST(TextTable, CountsCharactersNotBytes) {
  Table grid{.head = {"run", "loss"}};
  grid.add({"\xC3\xA4\xC3\xB6\xC3\xBC", "1"});
  EXPECT_EQ(text_of(grid), "run  loss\n\xC3\xA4\xC3\xB6\xC3\xBC     1\n");
}

/// Two keys, and more columns than fit: 40 seeds.
Table wide_table() {
  Table table{.title = "means", .head = {"arm", "budget"}, .rows = {}, .note = "A note.", .keys = 2};
  std::vector<std::string> row{"ub-smoe", "0.125"};
  for (int seed = 1; seed <= 40; ++seed) {
    table.head.push_back(concat("seed ", seed));
    row.push_back(concat("-1.", seed));
  }
  table.add(row);
  return table;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++found;
  return found;
}

TEST(LatexTable, EveryPartRepeatsTheKeys) {
  const auto text = latex_of(wide_table());
  const auto parts = count(text, "\\begin{tabular}");
  EXPECT_GT(parts, 2u) << text;
  EXPECT_EQ(count(text, "ub-smoe & $0.125$ & "), parts);
  EXPECT_EQ(count(text, "arm & budget & "), parts);
  EXPECT_EQ(count(text, "A note."), parts);
}

TEST(MarkdownTable, HeadsNameTheirGroups) {
  Table table{.title = "t", .head = {"task", "0.5", "1"}, .groups = {{1, 3, "demo"}}};
  table.add({"a|b", "1.0", "-"});
  EXPECT_EQ(markdown_of(table),
            "**t**\n\n| task | demo, 0.5 | demo, 1 |\n| --- | ---: | ---: |\n| a\\|b | 1.0 | - |\n");
  EXPECT_NE(latex_of(table).find("task & demo, 0.5 & demo, 1 "), std::string::npos);
}

TEST(Tables, WithoutAHeadAreRemarks) {
  const Table remark{.title = "nothing is evaluated yet"};
  EXPECT_EQ(text_of(remark), "nothing is evaluated yet\n");
  EXPECT_EQ(markdown_of(remark), "nothing is evaluated yet\n");
  EXPECT_EQ(latex_of(remark).find("tabular"), std::string::npos);
}

TEST(Wrapped, BreaksAtSpacesAndIndentsLaterLines) {
  EXPECT_EQ(wrapped("one two three four", 9), "one two\n  three\n  four\n");
  EXPECT_EQ(wrapped("a-word-that-is-longer than", 9), "a-word-that-is-longer\n  than\n");
  EXPECT_EQ(wrapped(""), "\n");
}

TEST(TableText, ANameWithALineFeedStaysInItsRow) {
  Table table{.head = {"client", "node\nx"}};
  table.add({"1", "a\nb\x1b[31m"});
  for (const auto& text : {text_of(table), markdown_of(table)}) {
    EXPECT_NE(text.find(R"(a\nb\x1b[31m)"), std::string::npos) << text;
    EXPECT_NE(text.find(R"(node\nx)"), std::string::npos) << text;
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
  }
}

}  // namespace
}  // namespace evenkeel::report
