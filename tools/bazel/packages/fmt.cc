// The parts of fmt that are no templates, compiled once. Debian's package has no static library, and with
// FMT_HEADER_ONLY each file that formats compiles them again (4.7 s instead of 0.8, GCC 12). fmt 9 to 12.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE

#if FMT_VERSION >= 120000
template locale_ref::locale_ref(const std::locale& loc);
template auto locale_ref::get<std::locale>() const -> std::locale;
#else
template detail::locale_ref::locale_ref(const std::locale& loc);
template auto detail::locale_ref::get<std::locale>() const -> std::locale;
template void detail::vformat_to(buffer<char>&, string_view, basic_format_args<format_context>, locale_ref);
#endif

namespace detail {

template auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void buffer<char>::append(const char*, const char*);

}  // namespace detail
FMT_END_NAMESPACE
