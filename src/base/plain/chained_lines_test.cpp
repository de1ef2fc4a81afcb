#include "base/plain/chained_lines.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>
#include <vector>

#include "base/plain/files.h"
#include "base/plain/sealed.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

class ChainedLines : public ::testing::Test {
 protected:
  void append(int64_t value) { head_ = append_chained(file_, {{"kind", "count"}, {"value", value}}); }
  void append_five() {
    for (int64_t value = 1; value <= 5; ++value) append(value);
  }
  std::vector<std::string> lines() const {
    std::ifstream in(file_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  void write(const std::vector<std::string>& lines) const { write_file_atomic(file_, join(lines, "\n") + "\n"); }
  void write_raw(const std::string& text) const { write_file_atomic(file_, text); }
  std::string fault() const {
    const auto found = check_chain(file_);
    return found.fault ? found.fault->what() : "none";
  }

  const testing::TemporaryFolder temporary_;
  const fs::path file_ = temporary_.path() / "audit.jsonl";
  std::string head_;
};

/// Returns the line with another value and a checksum that fits.
std::string resealed(const std::string& line, int64_t value) {
  auto json = OrderedJson::parse(line);
  json["value"] = value;
  json.erase("checksum");
  return sealed(json);
}

TEST_F(ChainedLines, EachLineHoldsTheDigestOfTheOneBefore) {
  append_five();
  const auto written = lines();
  ASSERT_EQ(written.size(), 5u);
  EXPECT_EQ(Json::parse(written[0]).at("before"), std::string(64, '0'));
  for (size_t i = 1; i < 5; ++i) EXPECT_EQ(Json::parse(written[i]).at("before"), sha256(written[i - 1]));
  std::vector<int64_t> values;
  const auto found =
      check_chain(file_, [&](const ChainedLine& line) { values.push_back(line.view.at("value").integer()); });
  EXPECT_FALSE(found.fault);
  EXPECT_EQ(values, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(found.lines, 5);
  EXPECT_EQ(found.torn + found.torn_end, 0);
  EXPECT_EQ(found.head, head_);
  EXPECT_EQ(found.head, sha256(written[4]));
}

TEST_F(ChainedLines, AChangedByteNamesItsLine) {
  append_five();
  auto changed = lines();
  changed[2].replace(changed[2].find("\"value\":3"), 9, "\"value\":7");
  write(changed);
  EXPECT_NE(fault().find("audit.jsonl, line 3: damaged: its bytes do not fit its checksum"), std::string::npos)
      << fault();
  EXPECT_EQ(check_chain(file_).lines, 2);
}

TEST_F(ChainedLines, ALineThatWasMadeAnewBreaksTheChainBehindIt) {
  append_five();
  auto changed = lines();
  changed[2] = resealed(changed[2], 7);
  write(changed);
  EXPECT_NE(fault().find("line 4: it does not go on from line 3"), std::string::npos) << fault();
}

TEST_F(ChainedLines, RemovedAddedAndMovedLinesAreNamed) {
  append_five();
  const auto whole = lines();
  auto removed = whole;
  removed.erase(removed.begin() + 2);
  write(removed);
  EXPECT_NE(fault().find("line 3: it has number 4 where 3 belongs"), std::string::npos) << fault();
  auto without_first = whole;
  without_first.erase(without_first.begin());
  write(without_first);
  EXPECT_NE(fault().find("line 1: it has number 2 where 1 belongs"), std::string::npos) << fault();
  auto swapped = whole;
  std::swap(swapped[1], swapped[2]);
  write(swapped);
  EXPECT_NE(fault().find("line 2: it has number 3 where 2 belongs"), std::string::npos) << fault();
  auto twice = whole;
  twice.insert(twice.begin() + 3, whole[2]);
  write(twice);
  EXPECT_NE(fault().find("line 4: it has number 3 where 4 belongs"), std::string::npos) << fault();
  auto blank = whole;
  blank.insert(blank.begin() + 1, "");
  write(blank);
  EXPECT_NE(fault().find("line 2: it is not whole"), std::string::npos) << fault();
}

TEST_F(ChainedLines, ALineThatWasCutIsNamedWhereverItStands) {
  append_five();
  for (const size_t place : {size_t{0}, size_t{2}, size_t{4}})
    for (const size_t left : {size_t{1}, size_t{20}, size_t{60}}) {
      const auto whole = lines();
      auto cut = whole;
      cut[place].resize(left);
      write(cut);
      EXPECT_NE(fault().find(concat("line ", place + 1, ": it is not whole")), std::string::npos) << fault();
      write(whole);
    }
}

TEST_F(ChainedLines, TornBytesAreKeptAndMarkedAndTheChainGoesOn) {
  append_five();
  const auto whole = read_file(file_);
  const auto fifth = lines()[4];
  const auto four = whole.substr(0, whole.size() - fifth.size() - 1);
  for (size_t left = 1; left < fifth.size(); ++left) {
    write_raw(four + fifth.substr(0, left));
    const auto torn = check_chain(file_);
    EXPECT_FALSE(torn.fault);
    EXPECT_EQ(torn.lines, 4);
    EXPECT_EQ(torn.torn_end, static_cast<int64_t>(left));
    append(6);
    const auto found = check_chain(file_);
    ASSERT_FALSE(found.fault) << left << ": " << found.fault->what();
    EXPECT_EQ(found.lines, 6) << "four, the marker and the new one";
    EXPECT_EQ(found.torn, 1);
    const auto now = lines();
    EXPECT_EQ(now[4], fifth.substr(0, left)) << "the torn bytes stay";
    const auto marker = Json::parse(now[5]);
    EXPECT_EQ(marker.at("kind"), "torn");
    EXPECT_EQ(marker.at("bytes"), left);
    EXPECT_EQ(marker.at("digest"), sha256(now[4]));
    EXPECT_EQ(marker.at("before"), sha256(now[3]));
  }
  write_raw(whole.substr(0, whole.size() - 1));  // only the line break is missing
  append(6);
  const auto found = check_chain(file_);
  EXPECT_FALSE(found.fault);
  EXPECT_EQ(found.lines, 6);
  EXPECT_EQ(found.torn, 0);
}

TEST_F(ChainedLines, AMarkerThatWasTornItselfIsMarkedWithWhatItMarked) {
  append_five();
  const auto whole = read_file(file_);
  write_raw(whole + R"({"n":6,"ki)" + "\n" + R"({"n":6,"kind":"to)");
  append(6);
  const auto found = check_chain(file_);
  ASSERT_FALSE(found.fault) << found.fault->what();
  EXPECT_EQ(found.torn, 1);
  EXPECT_EQ(found.lines, 7);
}

TEST_F(ChainedLines, ATornFirstLineIsMarked) {
  write_raw(R"({"n":1,"ki)");
  append(1);
  const auto found = check_chain(file_);
  ASSERT_FALSE(found.fault) << found.fault->what();
  EXPECT_EQ(found.torn, 1);
  EXPECT_EQ(found.lines, 2);
}

TEST_F(ChainedLines, TornBytesThatChangeAfterTheyWereMarkedAreNamed) {
  append_five();
  write_raw(read_file(file_) + R"({"n":6,"ki)");
  append(6);
  auto changed = lines();
  changed[5] += "x";
  write(changed);
  EXPECT_NE(fault().find("line 6: it is not whole"), std::string::npos) << fault();
  changed.erase(changed.begin() + 5);
  write(changed);
  EXPECT_NE(fault().find("line 6: it marks a torn line, and there is none"), std::string::npos) << fault();
}

TEST_F(ChainedLines, AChangedLastLineStaysVisibleBehindLaterLines) {
  append_five();
  auto changed = lines();
  changed[4].replace(changed[4].find("\"value\":5"), 9, "\"value\":8");
  write(changed);
  append(6);
  EXPECT_NE(fault().find("line 5: damaged"), std::string::npos) << fault();
}

TEST_F(ChainedLines, LinesLongerThanTheEndThatIsReadAreFollowed) {
  head_ = append_chained(file_, {{"text", std::string(200000, 'a')}});
  head_ = append_chained(file_, {{"text", std::string(70000, 'b')}});
  append(3);
  const auto found = check_chain(file_);
  EXPECT_FALSE(found.fault);
  EXPECT_EQ(found.lines, 3);
  EXPECT_EQ(found.head, head_);
}

TEST_F(ChainedLines, SeveralWritersMakeOneChain) {
  std::vector<std::thread> writers;
  for (int64_t writer = 0; writer < 3; ++writer)
    writers.emplace_back([&, writer] {
      for (int64_t i = 0; i < 40; ++i) append_chained(file_, {{"value", 100 * writer + i}}, Flush::kLater);
    });
  for (auto& writer : writers) writer.join();
  const auto found = check_chain(file_);
  EXPECT_FALSE(found.fault) << found.fault->what();
  EXPECT_EQ(found.lines, 120);
}

TEST_F(ChainedLines, ALineIsOnlyEverAdded) {
  append_five();
  const auto before = read_file(file_);
  write_raw(before + "{\"n\":6");
  append(6);
  EXPECT_TRUE(read_file(file_).starts_with(before + "{\"n\":6\n"));
}

TEST_F(ChainedLines, AnEmptyFileHoldsAndHasNoHead) {
  write_raw("");
  const auto found = check_chain(file_);
  EXPECT_FALSE(found.fault);
  EXPECT_EQ(found.lines, 0);
  EXPECT_EQ(found.head, std::string(64, '0'));
}

}  // namespace
}  // namespace evenkeel
