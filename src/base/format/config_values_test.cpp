#include "base/format/config_values.h"

#include <gtest/gtest.h>

namespace evenkeel::config {
namespace {

enum class Shade { kRed, kBlue };
constexpr auto names(Shade) {
  return std::array{EnumName<Shade>{"red", Shade::kRed}, EnumName<Shade>{"blue", Shade::kBlue}};
}

struct Part {
  double rate = 0.5;
  std::optional<int64_t> limit;
  void visit(auto& field) {
    field("rate", rate, "");
    field("limit", limit, "");
  }
};

struct Ranks {
  std::vector<int64_t> list{4, 8};
  std::string deal = "seed";
  bool listed() const { return deal == "seed"; }
  void visit(auto& field) { field("deal", deal, ""); }
};

struct Whole {
  std::string name = "a \"b\"";
  Shade colour = Shade::kBlue;
  Names tasks = "one";
  bool on = true;
  Part inner{};
  std::vector<Part> entries{{.rate = 1, .limit = 7}, {.rate = 2, .limit = {}}};
  std::map<std::string, Part> sets{{"x y", {.rate = 3, .limit = {}}}};
  Ranks ranks{};
  void visit(auto& field) {
    field("name", name, "");
    field("colour", colour, "");
    field("tasks", tasks, "");
    field("on", on, "");
    field("inner", inner, "");
    field("entry", entries, "");
    field("ranks", ranks, "");
    field.tables(sets, Part{});
  }
};

TEST(ConfigValues, AreTomlByFullKeyWithoutAbsentOnes) {
  EXPECT_EQ(values(Whole{}), (Values{{"name", R"("a \"b\"")"},
                                     {"colour", "\"blue\""},
                                     {"tasks", "\"one\""},
                                     {"on", "true"},
                                     {"inner.rate", "0.5"},
                                     {"entry[0].rate", "1.0"},
                                     {"entry[0].limit", "7"},
                                     {"entry[1].rate", "2.0"},
                                     {"ranks", "[4, 8]"},
                                     {"x y.rate", "3.0"}}));
}

TEST(ConfigValues, OfAStructThatIsNoListHaveItsKeys) {
  Whole outer;
  outer.ranks.deal = "order";
  const auto all = values(outer);
  EXPECT_FALSE(all.contains("ranks"));
  EXPECT_EQ(all.at("ranks.deal"), "\"order\"");
}

}  // namespace
}  // namespace evenkeel::config
