#include "base/plain/sealed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

class Sealed : public ::testing::Test {
 protected:
  const testing::TemporaryFolder temporary_;
  const fs::path file_ = temporary_.path() / "records.jsonl";
};

/// Returns `text` with one bit inverted.
std::string flipped(std::string text, size_t bit) {
  text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
  return text;
}

using testing::refusal;

TEST_F(Sealed, AnObjectRoundTripsAndIsValidJson) {
  const OrderedJson object = {{"round", 3}, {"loss", 2.25}, {"notes", "\"checksum\":\""}};
  for (int indent : {-1, 2}) {
    const auto text = sealed(object, indent);
    EXPECT_EQ(unsealed(text, "here"), Json(object)) << text;
    EXPECT_EQ(Json::parse(text).at("checksum").get<std::string>().size(), 16u);
  }
  EXPECT_EQ(sealed({{"a", 1}}), R"({"a":1,"checksum":")" + sha256(R"({"a":1,)").substr(0, 16) + "\"}");
}

TEST_F(Sealed, ItsEndIsRecognisedWhetherOrNotTheChecksumFits) {
  const auto text = sealed({{"round", 3}});
  EXPECT_TRUE(ends_as_sealed(text));
  EXPECT_TRUE(ends_as_sealed(text.substr(5)));
  EXPECT_TRUE(ends_as_sealed(R"("checksum":"0123456789abcdef"})"));
  EXPECT_FALSE(ends_as_sealed(R"("checksum":"0123456789abcdeF"})"));
  for (size_t length = 0; length < text.size(); ++length)
    EXPECT_FALSE(ends_as_sealed(text.substr(0, length))) << length;
}

TEST_F(Sealed, ANumberThatIsNotFiniteIsRefusedBeforeAnythingIsWritten) {
  const double infinity = std::numeric_limits<double>::infinity();
  append_sealed(file_, {{"round", 1}});
  const auto before = read_file(file_);
  std::map<std::string, OrderedJson> records;  // by what is said
  records["loss: it is"]["loss"] = std::nan("");
  records["seconds.train: it is inf"]["seconds"] = {{"broadcast", 1.5}, {"train", infinity}};
  records["clients[1].loss: it is -inf"]["clients"] = {{{"loss", 1.0}}, {{"loss", -infinity}}};
  records["lists[1][1]: it is inf"]["lists"] = {{1.0, 2.0}, {3.0, infinity}};
  for (const auto& [said, record] : records) {
    EXPECT_NE(refusal([&, &one = record] { append_sealed(file_, one); }).find(said), std::string::npos) << said;
    EXPECT_NE(refusal([&, &one = record] { write_sealed(file_, one, 2); }).find(said), std::string::npos) << said;
    EXPECT_EQ(read_file(file_), before);
  }
}

TEST_F(Sealed, ARecordMayHoldNoneAndTheLargestNumbers) {
  const double most = std::numeric_limits<double>::max();
  EXPECT_TRUE(sealed({{"name", nullptr}, {"list", {nullptr, 1.5}}, {"most", most}, {"least", -most}})
                  .starts_with(R"({"name":null,"list":[null,1.5],"most":1.7976931348623157e+308,)"));
}

TEST_F(Sealed, DetectsEveryFlippedBit) {
  const auto text = sealed({{"round", 3}, {"checksum", "mine"}});
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) EXPECT_THROW(unsealed(flipped(text, bit), "x"), Error) << bit;
  EXPECT_THROW(unsealed(R"({"round":3})", "x"), Error);
}

TEST_F(Sealed, DetectsEveryFlippedBitOfAFile) {
  for (int indent : {-1, 2}) {
    write_sealed(file_, {{"round", 3}}, indent);
    EXPECT_EQ(read_sealed(file_), Json({{"round", 3}}));
    const auto text = read_file(file_);
    for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
      write_file_atomic(file_, flipped(text, bit));
      EXPECT_THROW(read_sealed(file_), Error) << bit;
    }
  }
}

TEST_F(Sealed, DetectsEveryFlippedBitOfALineWithItsPosition) {
  append_sealed(file_, {{"round", 1}});
  append_sealed(file_, {{"round", 2}});
  const auto text = read_file(file_);
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    write_file_atomic(file_, flipped(text, bit));
    const auto line = bit / 8 < text.size() / 2 ? "line 1: damaged" : "line 2: damaged";
    EXPECT_NE(testing::refusal([&] { read_sealed_lines(file_).whole(); }).find(line), std::string::npos) << bit;
  }
}

TEST_F(Sealed, IgnoresAnIncompleteLastLine) {
  EXPECT_TRUE(read_sealed_lines(file_).whole().lines.empty());
  append_sealed(file_, {{"round", 1}});
  const auto one = read_file(file_);
  append_sealed(file_, {{"round", 2}});
  const auto two = read_file(file_);
  for (size_t length = one.size(); length < two.size(); ++length) {
    write_file_atomic(file_, two.substr(0, length));
    const auto lines = read_sealed_lines(file_).whole();
    ASSERT_EQ(lines.lines.size(), 1u) << length;
    EXPECT_EQ(lines.bytes(), static_cast<int64_t>(one.size()));
  }
}

TEST_F(Sealed, ALineAfterAnIncompleteOneIsReadBack) {
  append_sealed(file_, {{"round", 1}});
  const auto one = read_file(file_), next = sealed({{"round", 2}});
  for (size_t length = 0; length <= next.size(); ++length) {
    write_file_atomic(file_, one + next.substr(0, length));
    append_sealed(file_, {{"round", 3}});
    const auto lines = read_sealed_lines(file_).whole();
    ASSERT_EQ(lines.lines.size(), 2u) << length;
    EXPECT_EQ(lines.lines[1].json, Json({{"round", 3}}));
  }
}

TEST_F(Sealed, AMemberNamedChecksumDoesNotMakeAnIncompleteLineDamaged) {
  const OrderedJson object = {
      {"checksum", "0123456789abcdef"}, {"of", {{"checksum", "of another text"}}}, {"round", 1}};
  const auto line = sealed(object) + "\n";
  for (size_t length = 0; length < line.size(); ++length) {
    write_file_atomic(file_, line.substr(0, length));
    EXPECT_EQ(testing::refusal([&] { read_sealed_lines(file_).whole(); }), "no error") << length;
  }
  for (size_t bit = 0; bit < 8 * line.size(); bit += 7) {  // one of each byte at least
    write_file_atomic(file_, flipped(line, bit));
    EXPECT_NE(testing::refusal([&] { read_sealed_lines(file_).whole(); }).find("line 1: damaged"), std::string::npos);
  }
}

TEST_F(Sealed, LinesBeforeADamagedLineAreReturned) {
  for (int round : {1, 2, 3}) append_sealed(file_, {{"round", round}});
  auto text = read_file(file_);
  text[text.size() / 2] ^= 1;
  write_file_atomic(file_, text);
  const auto lines = read_sealed_lines(file_);
  EXPECT_EQ(lines.lines.size(), 1u);
  ASSERT_TRUE(lines.damage);
  EXPECT_THROW(lines.whole(), Error);
}

}  // namespace
}  // namespace evenkeel
