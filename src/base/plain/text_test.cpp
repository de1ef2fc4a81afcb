#include "base/plain/text.h"

#include <gtest/gtest.h>

#include "base/plain/error.h"

namespace evenkeel {
namespace {

using namespace std::string_literals;

TEST(Text, EscapesOnlyCharactersThatATerminalInterprets) {
  EXPECT_EQ(escaped("plain \\d+ \"é\" 漢 🙂"), "plain \\d+ \"é\" 漢 🙂");
  EXPECT_EQ(escaped("a\nb\tc\rd\x1b[31m\0e\x7f"s), "a\\nb\\tc\\rd\\x1b[31m\\x00e\\x7f");
  EXPECT_EQ(escaped("\u0085\u202e\u2028\ufeff"), "\\u{85}\\u{202e}\\u{2028}\\u{feff}");
  EXPECT_EQ(escaped("\xff|\xc3|\xed\xa0\x80|\xc0\xaf"), "\\xff|\\xc3|\\xed\\xa0\\x80|\\xc0\\xaf");
  EXPECT_EQ(escaped(escaped("\n\x1b")), escaped("\n\x1b"));
}

TEST(Text, ALongTextIsShortenedToBeginningEndAndLength) {
  EXPECT_EQ(shown(std::string(60, 'a')), std::string(60, 'a'));
  const std::string text = shown("begin" + std::string(100'000, 'x') + "end");
  EXPECT_LE(text.size(), 60u);
  EXPECT_TRUE(text.starts_with("beginx") && text.ends_with("xend")) << text;
  EXPECT_NE(text.find("... (100008 bytes) ..."), std::string::npos) << text;
}

TEST(Text, ShorteningDoesNotSplitACharacter) {
  for (size_t length = 30; length < 50; ++length) {
    std::string text(length, 'a');
    for (int i = 0; i < 40; ++i) text += "漢";
    EXPECT_TRUE(is_utf8(shown(text))) << shown(text);
    EXPECT_EQ(shown(text).find("\\x"), std::string::npos) << shown(text);
  }
  EXPECT_LE(shown(std::string(59, '\n')).size(), 60u);
  EXPECT_LE(shown(std::string(1000, '\x80')).size(), 60u);
}

TEST(Text, ValidatesUtf8) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("é漢🙂"));
  for (const auto* text : {"\x80", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xf4\x90\x80\x80"})
    EXPECT_FALSE(is_utf8(text)) << escaped(text);
}

TEST(Text, ParsesOnlyIntegers) {
  EXPECT_EQ(parse_number<int64_t>("-42"), -42);
  EXPECT_EQ(parse_number<uint8_t>("ff", 16), 255);
  EXPECT_EQ(parse_number<double>("2.5e-1"), 0.25);
  for (const auto* text : {"", "-", "+1", " 1", "1 ", "1x", "0x10", "9223372036854775808"})
    EXPECT_FALSE(parse_number<int64_t>(text)) << text;
  EXPECT_FALSE(parse_number<uint8_t>("100", 16));
  EXPECT_FALSE(parse_number<uint64_t>("-1"));
  EXPECT_FALSE(parse_number<double>("1.5.2"));
}

TEST(Error, IsOneLineOfAtMost500Bytes) {
  const Error error(kData, "first\nsecond\x1b[2J " + std::string(100'000, 'x') + " last");
  const std::string text = error.what();
  EXPECT_LE(text.size(), 490u);
  EXPECT_TRUE(text.starts_with("[data] first\\nsecond\\x1b[2J xxx")) << text;
  EXPECT_TRUE(text.ends_with("xxx last")) << text;
  EXPECT_LE(std::string(error.with_context("round 3").what()).size(), 490u);
}

}  // namespace
}  // namespace evenkeel
