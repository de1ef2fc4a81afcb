#include "data/option_places.h"

#include <gtest/gtest.h>

#include <vector>

namespace evenkeel::data {
namespace {

using Options = std::vector<std::string>;

/// Returns the option that is found, or an empty string.
std::string found(const Options& options, std::string_view text) {
  const auto place = first_option(options, text);
  return place ? options[place->option] : std::string();
}

TEST(FirstOption, IsNotPartOfAWordInAnyScript) {
  EXPECT_EQ(found({"sí", "no"}, "síntomas ausentes, no"), "no");
  EXPECT_EQ(found({"да", "нет"}, "данных нет"), "нет");
  EXPECT_EQ(found({"ναι", "όχι"}, "ναιός, όχι"), "όχι");
  EXPECT_EQ(found({"لا", "نعم"}, "لازم نعم"), "نعم");
  EXPECT_EQ(found({"हाँ", "ना"}, "नाम हाँ"), "हाँ");
  EXPECT_EQ(found({"é", "b"}, "té, b"), "b");
  EXPECT_EQ(found({"t", "b"}, "té, b"), "b");
  EXPECT_EQ(found({"e", "b"}, "e\u0301, b"), "b");  // a combining accent belongs to its letter
  EXPECT_EQ(found({"1", "2"}, "1² 2"), "2");
  EXPECT_EQ(found({"1", "2"}, "1٣ 2"), "2");
  EXPECT_EQ(found({"می", "no"}, "می\u200Cشود no"), "no");
}

TEST(FirstOption, MayBeNextToNonLetters) {
  EXPECT_EQ(found({"sí", "no"}, "«sí»"), "sí");
  EXPECT_EQ(found({"sí", "no"}, "¿no? ¡sí!"), "no");
  EXPECT_EQ(found({"A", "B"}, "_B_"), "B");
  EXPECT_EQ(found({"-1", "1"}, "x=-1"), "-1");
  EXPECT_EQ(found({"да", "нет"}, "Ответ:да"), "да");
}

TEST(FirstOption, NeedsNoSpacesWhereAScriptHasNone) {
  EXPECT_EQ(found({"对", "错"}, "答案是对"), "对");
  EXPECT_EQ(found({"正确", "不正确"}, "答案是不正确的"), "不正确");
  // The leftmost option: no dictionary separates the words.
  EXPECT_EQ(found({"はい", "いいえ"}, "答えはいいえです"), "はい");
  EXPECT_EQ(found({"犬", "猫"}, "答えは猫です"), "猫");
  EXPECT_EQ(found({"ネコ", "イヌ"}, "答えはイヌです"), "イヌ");
  EXPECT_EQ(found({"ใช่", "ไม่"}, "คำตอบคือใช่ครับ"), "ใช่");
  EXPECT_EQ(found({"ແມ່ນ", "ບໍ່"}, "ຄໍາຕອບແມ່ນບໍ່"), "ແມ່ນ");
  EXPECT_EQ(found({"បាទ", "ទេ"}, "ចម្លើយគឺទេ"), "ទេ");
  EXPECT_EQ(found({"A", "B"}, "答案是B选项"), "B");
}

TEST(FirstOption, DoesNotSplitAMarkFromItsLetter) {
  EXPECT_EQ(found({"ใช", "no"}, "ใช่ no"), "no");
  EXPECT_EQ(found({"か", "no"}, "か\u3099 no"), "no");
}

TEST(FirstOption, KoreanOptionsMayBeFollowedByAParticle) {
  EXPECT_EQ(found({"참", "거짓"}, "정답은 참입니다."), "참");
  EXPECT_EQ(found({"예", "아니오"}, "예전에는 아니오"), "아니오");
  EXPECT_EQ(found({"예", "아니오"}, "전예"), "");
}

TEST(FirstOption, IsTheLeftmostAndAmongThoseTheLongest) {
  EXPECT_EQ(first_option(Options{"not sure", "no", "not"}, "so not sure, no")->at, 3u);
  EXPECT_EQ(found({"no", "not sure", "not"}, "so not sure, no"), "not sure");
  EXPECT_EQ(first_option(Options{"x", "x"}, "an x")->option, 0u);
  EXPECT_EQ(found({"", "y"}, "x y"), "y");
  EXPECT_FALSE(first_option(Options{"x"}, "").has_value());
  EXPECT_FALSE(first_option(Options{}, "x").has_value());
  EXPECT_EQ(found({"x", "y"}, "\xFFy"), "y");
}

TEST(LowerCase, LowersLettersOfEveryScript) { EXPECT_EQ(lower_case("SÍ Да ΝΑΙ 对 X1"), "sí да ναι 对 x1"); }

}  // namespace
}  // namespace evenkeel::data
