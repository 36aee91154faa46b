"""A boolean that select() can ask for; @cuda//:enabled is one."""

def _cuda_flag_impl(_ctx):
    return []

cuda_flag = rule(
    implementation = _cuda_flag_impl,
    build_setting = config.bool(flag = True),
)
