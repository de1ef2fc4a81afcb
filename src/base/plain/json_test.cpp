#include "base/plain/json.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/testing.h"

namespace evenkeel {
namespace {

using namespace std::string_literals;

std::string message_of(const auto& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

std::string refusal(std::string_view text, const JsonLimits& limits = {}) {
  return message_of([&] { parse_json(text, "x.json", kCheckpoint, limits); });
}

std::string repeated(std::string_view part, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += part;
  return text;
}

TEST(ParseJson, ErrorsNameThePositionInTheText) {
  EXPECT_EQ(refusal("{\"a\": }"), "[checkpoint] x.json: not valid JSON at byte 7 of 7");
  EXPECT_EQ(refusal("{} {}"), "[checkpoint] x.json: not valid JSON at byte 4 of 5");
  EXPECT_EQ(refusal("{}\0"s), "[checkpoint] x.json: not valid JSON at byte 3 of 3: a NUL byte");
  EXPECT_EQ(refusal("[1e999]"),
            "[checkpoint] x.json: not valid JSON: a number too large for 64 bits of floating point");
  EXPECT_NE(refusal("").find("not valid JSON at byte 1 of 0"), std::string::npos);
}

TEST(ParseJson, NumbersThatOnlyOtherProgramsWriteAreNamed) {
  EXPECT_EQ(refusal("{\"a\": NaN}"),
            "[checkpoint] x.json: not valid JSON at byte 7 of 10: NaN is no JSON, allowed: null, or no such key");
  for (const std::string_view bad : {"[Infinity]", "[1, -Infinity]"})
    EXPECT_NE(refusal(bad).find(": Infinity is no JSON"), std::string::npos) << refusal(bad);
  EXPECT_EQ(refusal("[Nan]"), "[checkpoint] x.json: not valid JSON at byte 2 of 5");
}

TEST(ParseJson, LimitsDepthLengthAndNumberOfValues) {
  const std::string deep = repeated("[", 129) + repeated("]", 129);
  EXPECT_NE(refusal(deep).find("more than 128 deep at byte 129 of 258, allowed: up to 128"), std::string::npos);
  EXPECT_NE(refusal(repeated("{\"a\":", 1'000'000)).find("deep"), std::string::npos);
  EXPECT_NE(refusal("[1,2,3,4]", {.values = 3}).find("more than 3 values and keys at byte 7"), std::string::npos);
  EXPECT_NE(refusal("[1,2,3,4]", {.bytes = 8}).find("9 bytes of JSON, allowed: up to 8"), std::string::npos);
  EXPECT_EQ(parse_json(repeated("[", 128) + repeated("]", 128), "x").size(), 1u);
  EXPECT_EQ(parse_json(R"(["[[[{{{,,,\"[[\\"])", "x", kData, {.depth = 1, .values = 1}).size(), 1u);
}

TEST(ParseJson, AcceptedValuesNeedOnlyASmallStack) {
  std::thread([] {  // threads have a stack of 8 MiB with glibc and 128 KiB with musl; 128 levels fit into both
    const Json value = parse_json(repeated("{\"a\":[", 64) + repeated("]}", 64), "x");
    const Json copy = value;
    EXPECT_EQ(copy.dump().size(), 64u * 8);
    EXPECT_EQ(copy, value);
  })
      .join();
}

TEST(ParseJson, RejectsDuplicateKeysIfRequested) {
  const JsonLimits unique{.unique_keys = true};
  EXPECT_EQ(refusal(R"({"a": {"b": 1, "c": 2, "b": 3}})", unique),
            "[checkpoint] x.json: the key \"b\" stands twice in one object");
  EXPECT_EQ(parse_json(R"({"a": {"a": [{"a": 1}, {"a": 2}]}, "b": {"a": 3}})", "x", kData, unique).size(), 2u);
  EXPECT_EQ(parse_json(R"({"a": 1, "a": 2})", "x")["a"], 2);
}

TEST(ParseJson, RepeatedKeysAreFoundByTheirEntry) {
  const auto found = [](std::string_view text, std::string_view list = "") {
    std::string all;
    for (const auto& [key, entry] : repeated_keys(text, parse_json(text, "x"), list))
      all += concat(key, entry ? concat(" in ", *entry) : "", "|");
    return all;
  };
  EXPECT_EQ(found(R"([{"a:": 1, "b": ":"}, {"a": 1}, [{"a": 2}]])"), "");
  EXPECT_EQ(found(R"([{"a": 1}, 3, {"b": 1, "b": {"c": 1, "c": 2}}, [], {"m": [{"d": 1, "d": 1}]}])"),
            "b in 2|c in 2|d in 4|");
  EXPECT_EQ(found(R"({"a": 1, "a": 2})"), "a|");
  EXPECT_EQ(found(R"({"i": [{"a": 1, "a": 1}], "data": [{}, {"b": 1, "b": 1}], "i": 3})", "data"), "a|b in 1|i|");
}

TEST(ParseJson, OrderedJsonKeepsTheOrderOfKeys) {
  const JsonLimits unique{.unique_keys = true};
  const std::string text = R"({"b":{"z":1,"a":2},"a":3})";
  EXPECT_EQ(parse_json<OrderedJson>(text, "x", kData, unique).dump(), text);
  for (const std::string_view bad : {R"({"b": 1, "a": 2, "b": 3})", "[1,", "[1e999]"})
    EXPECT_EQ(message_of([&] { parse_json<OrderedJson>(bad, "x.json", kCheckpoint, unique); }), refusal(bad, unique));
}

TEST(LoadJson, StopsReadingAtTheSizeLimit) {
  const auto text = message_of([] { load_json("/dev/zero", kData, {.bytes = 1000}); });
  EXPECT_EQ(text, "[io] /dev/zero: longer than 1000 bytes, the most that is read of it");
}

TEST(ShownJson, IsShortForEveryValue) {
  EXPECT_EQ(shown(Json::parse(R"({"a":[1,"x"],"b":null})")), R"({"a":[1,"x"],"b":null})");
  EXPECT_EQ(shown(Json("line\nend")), "\"line\\nend\"");
  EXPECT_LE(shown(Json(std::string(100'000, 'x'))).size(), 60u);
  const std::string list = shown(Json(std::vector<int>(100'000, 7)));
  EXPECT_TRUE(list.starts_with("[7,7,") && list.ends_with(",... (a list of 100000)")) << list;
  Json deep = 1;
  for (int i = 0; i < 100'000; ++i) deep = Json::array({std::move(deep)});  // deeper than any parsed text
  EXPECT_EQ(shown(deep), "[[[[...]]]]");
}

class View : public ::testing::Test {
 protected:
  const Json json =
      Json::parse(R"({"n": 5, "x": 0.5, "on": true, "name": "abc", "none": null, "large": 9223372036854775808,
                                    "list": [{"a": 1}, {"a": "one"}], "negative": -3})");
  const JsonView view{json, "f.json, line 3", kCheckpoint};
};

TEST_F(View, ReadsExistingValues) {
  EXPECT_EQ(view.at("n").integer(1, 5), 5);
  EXPECT_EQ(view.at("n").number(), 5.0);
  EXPECT_EQ(view.at("name").string(), "abc");
  EXPECT_TRUE(view.at("on").flag());
  EXPECT_EQ(view.at("list").items().at(0).at("a").integer(), 1);
  EXPECT_EQ(view.members().size(), json.size());
  EXPECT_FALSE(view.has("none") || view.has("absent"));
  EXPECT_EQ(view.integer_or("none", 7), 7);
  EXPECT_EQ(view.number_or("x", 7), 0.5);
  EXPECT_EQ(view.string_or("absent", "other"), "other");
}

TEST_F(View, AValueOfAnotherTypeIsRejectedWithItsPath) {
  const std::string origin = "[checkpoint] f.json, line 3: ";
  EXPECT_EQ(message_of([&] { view.at("list").at(1).at("a").integer(); }),
            origin + "list[1].a is \"one\", expected a whole number");
  EXPECT_EQ(message_of([&] { view.at("list").at(2); }), origin + "list has 2 entries, expected at least 3");
  EXPECT_EQ(message_of([&] { view.at("list").at(0).at("b\n"); }), origin + "list[0].b\\n is missing");
  EXPECT_EQ(message_of([&] { view.at("absent"); }), origin + "absent is missing");
  EXPECT_EQ(message_of([&] { view.at("n").at("a"); }), origin + "n is 5, expected an object");
  EXPECT_EQ(message_of([&] { view.at("x").integer(); }), origin + "x is 0.5, expected a whole number");
  EXPECT_EQ(message_of([&] { view.flag_or("n", true); }), origin + "n is 5, expected true or false");
  EXPECT_EQ(message_of([&] { view.items(); }).substr(0, 60),
            "[checkpoint] f.json, line 3 is {\"large\":9223372036854775808,");
}

TEST_F(View, IntegersOutOfRangeAreRejected) {
  const std::string origin = "[checkpoint] f.json, line 3: ";
  EXPECT_EQ(message_of([&] { view.at("large").integer(); }),
            origin + "large is 9223372036854775808, allowed: whole numbers of 64 bits");
  EXPECT_EQ(message_of([&] { view.at("negative").integer(0, 9); }), origin + "negative is -3, allowed: 0 to 9");
  EXPECT_EQ(message_of([&] { view.at("negative").integer(1); }), origin + "negative is -3, allowed: 1 or more");
}

}  // namespace
}  // namespace evenkeel
