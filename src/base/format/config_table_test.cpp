#include "base/format/config_table.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "base/testing.h"

namespace evenkeel::config {
namespace {

enum class Colour { kRed, kGreen };
constexpr auto names(Colour) { return std::array{EnumName{"red", Colour::kRed}, EnumName{"green", Colour::kGreen}}; }

struct Inner {
  double lr = 2e-4;
  std::vector<double> betas = {0.9, 0.95};
  void visit(auto& field) {
    field("lr", lr, "learning rate");
    field("betas", betas, "");
  }
};

struct Outer {
  std::string name = "run";
  int64_t rounds = 3;
  bool shuffle = true;
  Colour colour = Colour::kRed;
  std::vector<std::string> tasks = {"a", "b"};
  std::vector<int64_t> ranks;
  Inner optimizer;
  void visit(auto& field) {
    field("name", name, "what the run is called");
    field("rounds", rounds, "");
    field("optimizer", optimizer, "");
    field("shuffle", shuffle, "");
    field("colour", colour, "");
    field("tasks", tasks, "");
    field("ranks", ranks, "");
  }
};

Outer outer_from(std::string_view text, std::span<const std::string_view> assignments = {}) {
  auto table = Table::parse(text, "demo.toml");
  for (const auto assignment : assignments) table.set(assignment);
  Outer outer;
  read(table, outer);
  return outer;
}

std::string message_of(std::string_view text, std::span<const std::string_view> assignments = {}) {
  try {
    outer_from(text, assignments);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kConfig);
    return error.what();
  }
  return "no error";
}

TEST(Config, ReadsEveryKindOfFieldAndKeepsDefaults) {
  const auto outer = outer_from(R"(
    name = "x \"y\""
    colour = "green"
    ranks = [4, 8]
    [optimizer]
    lr = 1
  )");
  EXPECT_EQ(outer.name, "x \"y\"");
  EXPECT_EQ(outer.colour, Colour::kGreen);
  EXPECT_EQ(outer.ranks, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(outer.optimizer.lr, 1.0);
  EXPECT_EQ(outer.rounds, 3);
}

struct Resolved {
  double low = 1, high = 0;
  void visit(auto& field) {
    field("low", low, "");
    field("high", high, "");
  }
  void resolve(const Table& table) {
    if (!table.contains("high")) high = 2 * low;
    table.check(high >= low, "high", high, "low or more");
  }
};

TEST(Config, ResolveSetsDependentDefaultsAndChecksValues) {
  EXPECT_EQ(read<Resolved>(Table::parse("low = 3", "a.toml")).high, 6);
  EXPECT_EQ(read<Resolved>(Table::parse("low = 3\nhigh = 4", "a.toml")).high, 4);
  const auto table = Table::parse("[range]\nlow = 3\nhigh = 2", "a.toml").table("range");
  try {
    read<Resolved>(table);
    FAIL() << "high below low was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[config] range.high is 2, allowed: low or more (a.toml, line 3)");
  }
}

/// A list of numbers, or a table with an equivalent description.
struct Numbers {
  std::vector<double> list{}, values{};
  int64_t times = 1;
  void visit(auto& field) {
    field("values", values, "");
    field("times", times, "");
  }
  bool listed() const { return values.empty(); }
};

struct Person {
  std::string name;
  std::vector<std::string> files;
  std::optional<double> share;
  void visit(auto& field) {
    field("name", name, "");
    field("files", files, "");
    field("share", share, "");
  }
  void resolve(const Table& table) const {
    if (share) table.check_share("share", *share);
  }
};

struct Group {
  Numbers numbers;
  std::vector<Person> person;
  void visit(auto& field) {
    field("numbers", numbers, "");
    field("person", person, "");
  }
};

Group group_from(std::string_view text) { return read<Group>(Table::parse(text, "group.toml")); }

std::string group_refusal(std::string_view text) {
  try {
    group_from(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Config, AFieldReadsAListOrATableAndIsWrittenInTheSameForm) {
  const auto list = group_from("numbers = [0.5, 1]"), table = group_from("[numbers]\nvalues = [0.25]\ntimes = 3");
  EXPECT_EQ(list.numbers.list, (std::vector<double>{0.5, 1}));
  EXPECT_TRUE(list.numbers.values.empty());
  EXPECT_EQ(table.numbers.values, std::vector<double>{0.25});
  EXPECT_EQ(table.numbers.times, 3);
  EXPECT_EQ(write(list), "numbers = [0.5, 1.0]\n");
  EXPECT_EQ(write(table), "[numbers]\nvalues = [0.25]\ntimes = 3\n");
  EXPECT_EQ(group_refusal("\nnumbers = 3"), "[config] numbers is 3, expected a list or a table (group.toml, line 2)");
  EXPECT_EQ(group_refusal("numbers = { value = [1] }"),
            "[config] numbers.value is not a known key (group.toml, line 1); known: times, values");
  EXPECT_EQ(group_refusal("numbers = [\"x\"]"),
            "[config] numbers holds \"x\", expected entries that are a number (group.toml, line 1)");
}

TEST(Config, AListOfTablesIsReadBackEqual) {
  const auto group = group_from("[[person]]\nname = \"a\"\nfiles = \"a.json\"\n[[person]]\nshare = 0.5\n");
  ASSERT_EQ(group.person.size(), 2u);
  EXPECT_EQ(group.person[0].files, std::vector<std::string>{"a.json"});
  EXPECT_FALSE(group.person[0].share);
  EXPECT_EQ(group.person[1].share, 0.5);
  const auto text = write(group);
  EXPECT_EQ(text,
            "numbers = []\n\n[[person]]\nname = \"a\"\nfiles = [\"a.json\"]\n\n[[person]]\nname = \"\"\nfiles = []\n"
            "share = 0.5\n");
  EXPECT_EQ(write(group_from(text)), text);
}

TEST(Config, AnErrorInAListOfTablesNamesTheEntryAndItsLine) {
  EXPECT_EQ(group_refusal("[[person]]\nname = \"a\"\n[[person]]\nshare = 1.5\n"),
            "[config] person[1].share is 1.5, allowed: greater than 0, at most 1 (group.toml, line 4)");
  EXPECT_EQ(group_refusal("[[person]]\nnam = \"a\"\n"),
            "[config] person[0].nam is not a known key (group.toml, line 2); known: files, name, share");
  EXPECT_EQ(group_refusal("person = [{ name = \"a\" }, 3]"),
            "[config] person[1] is 3, expected a table (group.toml, line 1)");
  EXPECT_EQ(group_refusal("[person]\nname = \"a\""),
            "[config] person is a table, expected a list of tables (group.toml, line 1)");
}

TEST(Config, AnUnknownKeyIsRejectedWithPathLineAndKnownKeys) {
  EXPECT_EQ(message_of("name = \"x\"\n[optimizer]\nlearning = 1\n"),
            "[config] optimizer.learning is not a known key (demo.toml, line 3); known: betas, lr");
}

TEST(Config, RejectsNumbersThatAreNotFinite) {
  EXPECT_EQ(message_of("[optimizer]\nlr = nan\n"),
            "[config] optimizer.lr is nan, expected a finite number (demo.toml, line 2)");
  EXPECT_EQ(message_of("[optimizer]\nbetas = [0.5, -inf]\n"),
            "[config] optimizer.betas holds -inf, expected finite numbers (demo.toml, line 2)");
}

TEST(Config, AWrongTypeIsRejectedWithTheExpectedType) {
  EXPECT_EQ(message_of("rounds = 2.5\n"), "[config] rounds is 2.5, expected a whole number (demo.toml, line 1)");
  EXPECT_EQ(message_of("rounds = \"2\"\n"), "[config] rounds is \"2\", expected a whole number (demo.toml, line 1)");
  EXPECT_EQ(message_of("shuffle = 1\n"), "[config] shuffle is 1, expected true or false (demo.toml, line 1)");
  EXPECT_EQ(message_of("tasks = [\"a\", 3]\n"),
            "[config] tasks holds 3, expected entries that are a string (demo.toml, line 1)");
  EXPECT_EQ(message_of("optimizer = 3\n"), "[config] optimizer is 3, expected a table (demo.toml, line 1)");
  EXPECT_EQ(message_of("ranks = 3\n"),
            "[config] ranks is 3, expected a list, each entry a whole number (demo.toml, line 1)");
}

TEST(Config, AnUnknownEnumeratorIsRejectedWithTheAllowedOnes) {
  EXPECT_EQ(message_of("colour = \"blue\"\n"), "[config] colour is \"blue\", allowed: red, green (demo.toml, line 1)");
}

TEST(Config, ASyntaxErrorIsReportedWithLineAndColumn) {
  EXPECT_NE(message_of("name = \"x\"\nrounds = = 3\n").find("[config] demo.toml: line 2, column "), std::string::npos);
  EXPECT_THROW(Table::load("/nonexistent/x.toml"), Error);
}

TEST(Config, SetReplacesValuesAndCreatesTables) {
  const std::vector<std::string_view> settings = {"optimizer.lr=3e-4", "name=models/tiny-olmoe", "tasks=[\"c\"]",
                                                  " rounds = 7 ", "optimizer.betas=[0, 1]"};
  const auto outer = outer_from("", settings);
  EXPECT_EQ(outer.optimizer.lr, 3e-4);
  EXPECT_EQ(outer.name, "models/tiny-olmoe");
  EXPECT_EQ(outer.tasks, (std::vector<std::string>{"c"}));
  EXPECT_EQ(outer.rounds, 7);
  EXPECT_EQ(outer.optimizer.betas, (std::vector<double>{0, 1}));
}

TEST(Config, SetAcceptsAListOfBareWords) {
  const auto tasks = [](std::string_view assignment) { return outer_from("", std::vector{assignment}).tasks; };
  EXPECT_EQ(tasks("tasks=[piqa]"), (std::vector<std::string>{"piqa"}));
  EXPECT_EQ(tasks("tasks=[piqa, builtin:sizes]"), (std::vector<std::string>{"piqa", "builtin:sizes"}));
  EXPECT_EQ(tasks("tasks=[]"), std::vector<std::string>());
  for (const std::string_view assignment : {"tasks=[piqa,,x]", "tasks=[a b]", "tasks=[piqa", "tasks=[x]]"})
    EXPECT_NE(message_of("", std::span(&assignment, 1)).find("neither TOML nor a bare word"), std::string::npos);
}

TEST(Config, SetRejectsInvalidValues) {
  const auto with = [](std::string_view assignment) { return message_of("name = \"x\"\n", std::span(&assignment, 1)); };
  EXPECT_EQ(with("rounds"), "[config] --set rounds: expected a.b=value");
  EXPECT_EQ(with("name.x=3"), "[config] --set name.x=3: name is \"x\", not a table");
  EXPECT_EQ(with("a..b=3"), "[config] --set a..b=3: \"\" is not a key");
  EXPECT_NE(with("name=two words").find("neither TOML nor a bare word"), std::string::npos);
  EXPECT_NE(with("rounds=1\nshuffle=false").find("neither TOML nor a bare word"), std::string::npos);
  EXPECT_EQ(with("rouns=1").substr(0, 52), "[config] rouns is not a known key (from --set); know");
}

TEST(Config, WrittenConfigsAreReadBackEqual) {
  Outer outer;
  outer.name = "tab\t \"quoted\" back\\slash \x01 ü";
  outer.optimizer.lr = 0.1 + 0.2;
  outer.optimizer.betas = {1e-300, 20, -0.0, 1e22, std::numeric_limits<double>::max(), 5e-324, 123456789.0};
  outer.colour = Colour::kGreen;
  const auto text = write(outer);
  const auto again = outer_from(text);
  EXPECT_EQ(again.name, outer.name);
  EXPECT_EQ(again.optimizer.lr, outer.optimizer.lr);
  EXPECT_EQ(again.optimizer.betas, outer.optimizer.betas);
  EXPECT_EQ(write(again), text);
}

TEST(Config, WritesScalarsBeforeTablesAndHelpAsComments) {
  EXPECT_EQ(write(Outer{}),
            "name = \"run\"\nrounds = 3\nshuffle = true\ncolour = \"red\"\ntasks = [\"a\", \"b\"]\nranks = []\n\n"
            "[optimizer]\nlr = 2e-04\nbetas = [0.9, 0.95]\n");
  EXPECT_NE(write(Outer{}, true).find("name = \"run\"  # what the run is called\n"), std::string::npos);
}

TEST(Config, KeysOfOtherReadersAreIgnored) {
  const std::array<std::string_view, 1> others = {"spare-part"};
  Outer outer;
  EXPECT_NO_THROW(read(Table::parse("spare-part = 1\n", "x"), outer, others));
  EXPECT_THROW(read(Table::parse("spare = 1\n", "x"), outer, others), Error);
}

TEST(Config, KeysAndBracketsAreLimitedBeforeParsing) {
  std::string key = "a";
  for (int i = 0; i < 100'000; ++i) key += ".a";
  const std::string parts = "33 parts of one key, allowed: up to 32";
  EXPECT_EQ(message_of("rounds = 1\n" + key + " = 1"), "[config] demo.toml: line 2: " + parts);
  EXPECT_EQ(message_of("[" + key + "]"), "[config] demo.toml: line 1: " + parts);
  EXPECT_EQ(message_of("x = {" + key + " = 1}"), "[config] demo.toml: line 1: " + parts);
  const std::string brackets = "33 brackets within each other, allowed: up to 32";
  EXPECT_EQ(message_of("x = " + std::string(100'000, '[')), "[config] demo.toml: line 1: " + brackets);
  const std::string assignment = key + "=1", nested = "rounds=" + std::string(100'000, '{');
  const std::string_view deep_key[] = {assignment}, deep_value[] = {nested};
  EXPECT_TRUE(message_of("", deep_key).ends_with("line 1: " + parts)) << message_of("", deep_key);
  EXPECT_TRUE(message_of("", deep_value).ends_with("line 1: " + brackets)) << message_of("", deep_value);
}

TEST(Config, DotsAndBracketsInStringsNumbersAndCommentsDoNotCount) {
  const std::string dots(100, '.'), brackets(100, '[');
  EXPECT_EQ(outer_from("name = \"" + dots + "\\\"" + brackets + "\"").name, dots + "\"" + brackets);
  EXPECT_EQ(outer_from("name = '" + dots + "'").name, dots);
  EXPECT_EQ(outer_from("name = \"\"\"" + dots + "\n" + brackets + "\"\"\"").name, dots + "\n" + brackets);
  EXPECT_EQ(outer_from("# it's " + dots + brackets + "\nrounds = 2").rounds, 2);
  std::string numbers = "optimizer.betas = [0.5";
  for (int i = 0; i < 100; ++i) numbers += ", 0.5";
  EXPECT_EQ(outer_from(numbers + "]").optimizer.betas.size(), 101u);
}

TEST(Config, ALongValueIsShortenedToOneLine) {
  const auto text = message_of("rounds = \"" + std::string(1'000'000, 'x') + "\\n\\u001b\"");
  EXPECT_LE(text.size(), 200u);
  EXPECT_NE(text.find("... (1000014 bytes) ..."), std::string::npos) << text;
}

TEST(Config, ASettingMergesATableAtEveryDepth) {
  auto table =
      Table::parse("[train]\nrounds = 3\nbatch = 2\n[train.optimizer]\nlr = 0.01\nbetas = [0.9, 0.99]\n", "a.toml");
  table.set("train={rounds=1, optimizer={lr=1e-3}}");
  EXPECT_EQ(table.table("train").integer("rounds"), 1);
  EXPECT_EQ(table.table("train").integer("batch"), 2);
  EXPECT_EQ(table.table("train").table("optimizer").number("lr"), 1e-3);
  EXPECT_EQ(table.table("train").table("optimizer").numbers("betas"), (std::vector<double>{0.9, 0.99}));
  EXPECT_EQ(table.table("train").place_of("rounds"), " (from --set)");
  table.set("train.optimizer={betas=[0.5], eps.first=1}");
  EXPECT_EQ(table.table("train").table("optimizer").numbers("betas"), std::vector<double>{0.5});
  EXPECT_TRUE(table.contains_path("train.optimizer.eps.first"));
  EXPECT_FALSE(table.contains_path("train.optimizer.lr.first"));
  EXPECT_FALSE(table.contains_path("train.optimiser"));
}

TEST(Config, ASettingReplacesListsAndNoTableByAScalar) {
  auto table = Table::parse("a = 1\nlist = [1, 2]\n[b]\nc = 2\n[[several]]\nx = 1\n", "a.toml");
  table.set("list={values=[3]}");
  EXPECT_EQ(table.table("list").integers("values"), std::vector<int64_t>{3});
  table.set("list=[4]");
  EXPECT_EQ(table.integers("list"), std::vector<int64_t>{4});
  table.set("several=[{x=2}, {x=3}]");
  EXPECT_EQ(table.tables("several").at(1).integer("x"), 3);
  const auto refused = [&](std::string_view setting) { return testing::refusal([&] { table.set(setting); }); };
  EXPECT_NE(refused("a={b=1}").find("--set a={b=1}: a is 1, not a table"), std::string::npos);
  EXPECT_NE(refused("b=5").find("--set b=5: b is a table, not 5"), std::string::npos);
  table.set("b.name=x");
  EXPECT_NE(refused("b=y").find("b is a table, not \"y\"; its name is b.name"), std::string::npos);
  EXPECT_NE(refused("b={c={d=1}}").find("b.c is 2, not a table"), std::string::npos);
  EXPECT_EQ(table.table("b").integer("c"), 2);
}

}  // namespace
}  // namespace evenkeel::config
