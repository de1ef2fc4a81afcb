#include "base/format/record.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/plain/error.h"

namespace evenkeel {
namespace {

struct Inner {
  int64_t count = 0;
  at::Tensor counts;
  void visit(auto& field) {
    field("count", count);
    field("counts", counts);
  }
};

struct Outer {
  std::string name;
  double share = 0;
  bool whole = false;
  std::optional<double> maybe, never;
  std::map<std::string, Inner> by_layer;
  std::vector<Inner> list;
  std::vector<std::string> words;
  void visit(auto& field) {
    field("name", name);
    field("share", share);
    field("whole", whole);
    field("maybe", maybe);
    field("never", never);
    field("by_layer", by_layer);
    field("list", list);
    field("words", words);
  }
};

constexpr std::string_view kText =
    R"({"name":"a\"b","share":0.1,"whole":true,"maybe":-2.5,"by_layer":{"x":{"count":3,"counts":[1,0,2]}},)"
    R"("list":[{"count":0,"counts":[]},{"count":9223372036854775807,"counts":[7]}],"words":["u","v"]})";

TEST(Record, IsWrittenInVisitOrderAndReadBackEqual) {
  const Json json = parse_json(kText, "here");
  const auto outer = record::read<Outer>({json, "here"});
  EXPECT_EQ(outer.maybe, -2.5);
  EXPECT_FALSE(outer.never);
  EXPECT_TRUE(outer.by_layer.at("x").counts.equal(at::tensor({1, 0, 2}, at::kLong)));
  EXPECT_EQ(outer.list[1].count, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(record::write(outer).dump(), kText);
}

TEST(Record, MissingOrMistypedFieldsAreNamedWithTheirPath) {
  const auto refusal = [](std::string_view from, std::string_view to) {
    std::string text(kText);
    text.replace(text.find(from), from.size(), to);
    const Json json = parse_json(text, "here");
    try {
      record::read<Outer>({json, "here"});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(refusal(R"("share":0.1,)", "").find("share"), std::string::npos);
  EXPECT_NE(refusal("[1,0,2]", "[1,-1,2]").find("by_layer.x.counts[1]"), std::string::npos)
      << refusal("[1,0,2]", "[1,-1,2]");
  EXPECT_NE(refusal(R"("count":0)", R"("count":0.5)").find("list[0].count"), std::string::npos);
  EXPECT_NE(refusal(R"(["u","v"])", "{}").find("words"), std::string::npos);
}

struct Grown {
  int64_t old = 0, young = 7;
  std::optional<Inner> pair;
  void visit(auto& field) {
    field("old", old);
    field.optional("young", young);
    if (field.holds("count", pair.has_value())) (pair ? *pair : pair.emplace()).visit(field);
  }
};

TEST(Record, FieldsMissingInOlderFilesKeepTheirDefault) {
  const auto again = [](std::string_view text) {
    const Json json = parse_json(text, "here");
    return record::write(record::read<Grown>({json, "here"})).dump();
  };
  EXPECT_EQ(again(R"({"old":3})"), R"({"old":3,"young":7})");
  EXPECT_EQ(again(R"({"old":3,"young":null})"), R"({"old":3,"young":7})");
  EXPECT_EQ(again(R"({"old":3,"young":0})"), R"({"old":3,"young":0})");
  EXPECT_THROW(again(R"({"old":3,"young":"0"})"), Error);
}

TEST(Record, FieldGroupsAreCompleteOrAbsent) {
  const Json whole = parse_json(R"({"old":3,"young":4,"count":2,"counts":[5]})", "here");
  const Json half = parse_json(R"({"old":3,"young":4,"count":2})", "here");
  const auto grown = record::read<Grown>({whole, "here"});
  EXPECT_EQ(Json(record::write(grown)), whole);
  EXPECT_FALSE(record::write(Grown{}).contains("count"));
  EXPECT_THROW(record::read<Grown>({half, "here"}), Error);
}

}  // namespace
}  // namespace evenkeel
